/* The shapes of ResNet-50 on pictures of 224 x 224: every distinct convolution, and every distinct batch
 * normalization, with how often the network has it. */
#ifndef TESTS_RESNET50_H
#define TESTS_RESNET50_H

struct resnet50_conv {
    int h, c, k, r, stride, pad;
    int times;
};

static const struct resnet50_conv resnet50_convs[] = {
    {224, 3, 64, 7, 2, 3, 1},    {56, 64, 64, 1, 1, 0, 1},     {56, 64, 64, 3, 1, 1, 3},
    {56, 64, 256, 1, 1, 0, 4},   {56, 256, 64, 1, 1, 0, 2},    {56, 256, 128, 1, 1, 0, 1},
    {56, 128, 128, 3, 2, 1, 1},  {56, 256, 512, 1, 2, 0, 1},   {28, 128, 512, 1, 1, 0, 4},
    {28, 512, 128, 1, 1, 0, 3},  {28, 128, 128, 3, 1, 1, 3},   {28, 512, 256, 1, 1, 0, 1},
    {28, 256, 256, 3, 2, 1, 1},  {28, 512, 1024, 1, 2, 0, 1},  {14, 256, 1024, 1, 1, 0, 6},
    {14, 1024, 256, 1, 1, 0, 5}, {14, 256, 256, 3, 1, 1, 5},   {14, 1024, 512, 1, 1, 0, 1},
    {14, 512, 512, 3, 2, 1, 1},  {14, 1024, 2048, 1, 2, 0, 1}, {7, 512, 2048, 1, 1, 0, 3},
    {7, 2048, 512, 1, 1, 0, 2},  {7, 512, 512, 3, 1, 1, 2},
};

struct resnet50_norm {
    int h, c;
    int residual; /* 1: added before the rectifier */
    int relu;
    int times;
};

static const struct resnet50_norm resnet50_norms[] = {
    {112, 64, 0, 1, 1}, {56, 64, 0, 1, 6},   {56, 256, 0, 0, 1},  {56, 256, 1, 1, 3},
    {56, 128, 0, 1, 1}, {28, 128, 0, 1, 7},  {28, 512, 0, 0, 1},  {28, 512, 1, 1, 4},
    {28, 256, 0, 1, 1}, {14, 256, 0, 1, 11}, {14, 1024, 0, 0, 1}, {14, 1024, 1, 1, 6},
    {14, 512, 0, 1, 1}, {7, 512, 0, 1, 5},   {7, 2048, 0, 0, 1},  {7, 2048, 1, 1, 3},
};

enum {
    RESNET50_CONVS = sizeof(resnet50_convs) / sizeof(resnet50_convs[0]),
    RESNET50_NORMS = sizeof(resnet50_norms) / sizeof(resnet50_norms[0])
};

#endif
