/* The networks, described with layers.h. Sizes come from the options, 0 meaning the network's own, and from
 * the data. */
#ifndef HARNESS_NET_H
#define HARNESS_NET_H

#include "harness/data/dataset.h"
#include "harness/model/layers.h"
#include "harness/base/train_options.h"

/* Options with every size of the model filled in; names a size that cannot be. */
enum status net_fill_options(struct train_options *options);

/* Which kind of data the model of these options learns from. */
enum data_kind net_data_kind(const struct train_options *options);

/* Adds the layers and draws the start weights. The caller closes the model, also after a failure. */
enum status net_build(struct model *model, const struct train_options *options, const struct data_spec *spec);

/* What net_build calls. */
void net_build_mlp(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_cnn(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_resnet(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_gpt(struct model *model, const struct train_options *options, const struct data_spec *spec);
void net_build_unet(struct model *model, const struct train_options *options, const struct data_spec *spec);

#endif
