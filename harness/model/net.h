/* The networks, built from layers.h. Their sizes come from the options, where 0 means the network's
 * default, and from the data. */
#ifndef HARNESS_NET_H
#define HARNESS_NET_H

#include "harness/data/dataset.h"
#include "harness/model/layers.h"
#include "harness/base/train_options.h"

/* Replaces sizes of 0 by the network's defaults. Prints a message if a size is impossible. */
enum status net_fill_options(struct train_options *options);

/* Returns the kind of data that the chosen model learns from. */
enum data_kind net_data_kind(const struct train_options *options);

/* Adds the layers and draws the initial weights. The caller closes the model, also after a failure. */
enum status net_build(struct model *model, const struct train_options *options, const struct data_spec *spec);

/* One function per network; net_build calls them. */
void net_build_mlp(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_cnn(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_resnet(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_gpt(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_unet(struct model *model, const struct train_options *options, const struct data_spec *spec);

#endif
