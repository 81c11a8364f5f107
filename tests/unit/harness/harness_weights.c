/* Weights as safetensors: what was saved is loaded with the same bits, a file has the names and shapes of
 * PyTorch's modules, and a file that is damaged or of another model is refused with a reason. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/train/safetensors.h"
#include "tests/unit/harness/harness_support.h"
#include "unity.h"

enum { LINE = 2048, PATH_ROOM = 700 };

static const char *folder;
static char path[600], save[PATH_ROOM], load[PATH_ROOM];

void setUp(void)
{
    folder = train_make_folder();
    snprintf(path, sizeof(path), "%s/run.safetensors", folder);
    snprintf(save, sizeof(save), "--save-weights=%s", path);
    snprintf(load, sizeof(load), "--load-weights=%s", path);
}

void tearDown(void)
{
    train_forget();
    train_remove_folder(folder);
}

static char *read_file(size_t *count)
{
    struct stat info;
    FILE *file = fopen(path, "r");
    char *bytes;

    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_INT(0, fstat(fileno(file), &info));
    *count = (size_t)info.st_size;
    bytes = malloc(*count);
    TEST_ASSERT_NOT_NULL(bytes);
    TEST_ASSERT_EQUAL_size_t(*count, fread(bytes, 1, *count, file));
    fclose(file);
    return bytes;
}

/* The last run's loss and validation, as text. */
static void copy_result(char *out, size_t size)
{
    int length;

    train_went_well();
    length = snprintf(out, size, "%s", train_field("loss_last"));
    snprintf(out + length, size - (size_t)length, " %s", train_field("val_loss"));
}

static void run_model(const char *const *model, const char *first, const char *second, const char *third)
{
    const char *arguments[24];
    int n = 0;

    for (; model[n]; n++)
        arguments[n] = model[n];
    arguments[n++] = "--batch=4";
    arguments[n++] = "--quiet";
    arguments[n++] = first;
    arguments[n++] = second;
    arguments[n++] = third;
    arguments[n] = NULL;
    train_run_on("1x512M", arguments);
}

/* --steps=0 saves the weights before any step: from them a run comes to the same loss. Those after two steps
 * have the same validation. All to the last digit. */
static void test_saved_weights_are_loaded_with_the_same_bits(void)
{
    static const char *const models[][12] = {
        {"--hidden=16,8"},
        {"--model=cnn", "--width=4", "--image=12"},
        {"--model=resnet18", "--width=4", "--image=16"},
        {"--model=resnet50", "--width=4", "--image=72", "--precision=bf16"},
        {"--model=gpt", "--layers=2", "--width=16", "--heads=2", "--length=8", "--vocabulary=32"},
        {"--model=unet", "--layers=2", "--width=4", "--image=8"},
    };

    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        char whole[64], loaded[64];

        run_model(models[i], "--steps=0", save, NULL);
        train_went_well();
        run_model(models[i], "--steps=2", NULL, NULL);
        copy_result(whole, sizeof(whole));
        run_model(models[i], "--steps=2", load, NULL);
        copy_result(loaded, sizeof(loaded));
        TEST_ASSERT_EQUAL_STRING(whole, loaded);
        run_model(models[i], "--steps=2", save, NULL);
        train_went_well();
        run_model(models[i], "--steps=0", load, NULL);
        copy_result(loaded, sizeof(loaded));
        TEST_ASSERT_EQUAL_STRING(strchr(whole, ' '), strchr(loaded, ' '));
    }
}

static void test_replicas_load_and_save_one_set_of_weights(void)
{
    char whole[64], loaded[64];

    TRAIN("2x256M", "--hidden=16", "--batch=4", "--steps=2", "--replicas=all", "--quiet", save);
    copy_result(whole, sizeof(whole));
    TRAIN("2x256M", "--hidden=16", "--batch=4", "--steps=0", "--replicas=all", "--quiet", load);
    copy_result(loaded, sizeof(loaded));
    TEST_ASSERT_EQUAL_STRING(strchr(whole, ' '), strchr(loaded, ' '));
}

/* ---- names ---- */

static void shape_is(const struct safetensors_table *table, const char *name, int dims, const uint64_t *shape)
{
    const struct safetensors_tensor *tensor = safetensors_find(table, name);

    TEST_ASSERT_NOT_NULL_MESSAGE(tensor, name);
    TEST_ASSERT_EQUAL_STRING("F32", tensor->type);
    TEST_ASSERT_EQUAL_INT_MESSAGE(dims, tensor->dims, name);
    TEST_ASSERT_EQUAL_UINT64_ARRAY_MESSAGE(shape, tensor->shape, dims, name);
}

#define SHAPE(table, name, dims, ...) shape_is(table, name, dims, (const uint64_t[]){__VA_ARGS__})

static struct safetensors_table read_table(void)
{
    struct safetensors_table table;
    size_t count;
    char *bytes = read_file(&count);
    uint64_t length;

    memcpy(&length, bytes, sizeof(length));
    TEST_ASSERT_NULL(safetensors_parse(bytes + 8, length, count - 8 - length, &table));
    free(bytes);
    return table;
}

static void test_names_and_shapes_are_those_of_pytorchs_modules(void)
{
    struct safetensors_table table;

    TRAIN("1x512M", "--model=resnet50", "--width=4", "--image=72", "--steps=0", "--batch=1", "--quiet", save);
    train_went_well();
    table = read_table();
    TEST_ASSERT_EQUAL_size_t(161 + 2 * 53, table.count); /* torchvision's parameters and statistics */
    SHAPE(&table, "conv1.weight", 4, 4, 3, 7, 7);
    SHAPE(&table, "layer1.0.downsample.0.weight", 4, 16, 4, 1, 1);
    SHAPE(&table, "layer4.2.conv2.weight", 4, 32, 32, 3, 3);
    SHAPE(&table, "layer4.2.bn3.running_var", 1, 128);
    SHAPE(&table, "fc.weight", 2, 10, 128);
    safetensors_free(&table);
    TRAIN("1x512M", "--model=gpt", "--layers=1", "--width=16", "--heads=2", "--length=8", "--steps=0",
          "--batch=1", "--quiet", save);
    table = read_table();
    TEST_ASSERT_EQUAL_size_t(2 + 12 + 2, table.count);
    SHAPE(&table, "transformer.wpe.weight", 2, 8, 16);
    SHAPE(&table, "transformer.h.0.attn.c_attn.weight", 2, 48, 16);
    SHAPE(&table, "transformer.ln_f.bias", 1, 16);
    safetensors_free(&table);
    TRAIN("1x512M", "--model=unet", "--layers=1", "--width=4", "--image=8", "--steps=0", "--batch=1",
          "--quiet", save);
    table = read_table();
    SHAPE(&table, "up.0.conv1.weight", 4, 4, 8, 3, 3);
    SHAPE(&table, "out.weight", 4, 3, 4, 1, 1);
    SHAPE(&table, "out.bias", 1, 3);
    safetensors_free(&table);
}

/* ---- bad files ---- */

static void is_refused(const char *why)
{
    TRAIN("1x256M", "--hidden=8", "--steps=0", "--quiet", load);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, why), train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
}

static void write_bytes(const void *bytes, size_t count)
{
    train_write_file(folder, "run.safetensors", bytes, count);
}

/* Writes the header as it is, with zeros behind it. */
static void write_header(const char *header, size_t data)
{
    static char file[8192];
    uint64_t length = strlen(header);

    memset(file, 0, sizeof(file));
    memcpy(file, &length, sizeof(length));
    memcpy(file + 8, header, length);
    write_bytes(file, 8 + length + data);
}

static void test_bad_files_are_refused_with_a_reason(void)
{
    char *bytes;
    size_t count;

    is_refused("No such file");
    write_bytes("abc", 3);
    is_refused("too short");
    write_bytes("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    is_refused("longer than the file");
    write_header("{}", 0);
    is_refused("it has no layers.0.weight");
    write_header("[]", 0);
    is_refused("not JSON");
    write_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4);
    is_refused("truncated");
    TRAIN("1x256M", "--hidden=8", "--steps=0", "--quiet", save);
    train_went_well();
    bytes = read_file(&count);
    write_bytes(bytes, count - 1);
    is_refused("truncated");
    free(bytes);
    TRAIN("1x256M", "--hidden=9", "--steps=0", "--quiet", save);
    is_refused("layers.0.weight has another shape");
    TRAIN("1x256M", "--hidden=8,8", "--steps=0", "--quiet", save);
    is_refused("another shape");
    TRAIN("1x256M", "--model=cnn", "--image=8", "--steps=0", "--quiet", save);
    is_refused("it is of another model");
}

static void test_other_types_are_refused(void)
{
    size_t count;
    char *bytes, *type;

    TRAIN("1x256M", "--hidden=8", "--steps=0", "--quiet", save);
    bytes = read_file(&count);
    type = strstr(bytes + 8, "F32");
    TEST_ASSERT_NOT_NULL(type);
    memcpy(type, "I32", 3);
    write_bytes(bytes, count);
    free(bytes);
    is_refused("only F32 can be loaded");
}

/* PyTorch's batch normalization counts its batches, and a tied table may have two names. */
static void test_tensors_that_mean_nothing_here_are_ignored(void)
{
    static const char more[] =
        ",\"x.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[%zu,%zu]}}";
    char extra[LINE];
    size_t count, data;
    uint64_t length, longer;
    char *bytes, *file;

    TRAIN("1x256M", "--hidden=8", "--steps=0", "--quiet", save);
    bytes = read_file(&count);
    memcpy(&length, bytes, sizeof(length));
    data = count - 8 - length;
    snprintf(extra, sizeof(extra), more, data, data + 8);
    longer = (uint64_t)((char *)memrchr(bytes + 8, '}', length) - (bytes + 8)) + strlen(extra);
    file = calloc(1, 8 + longer + data + 8);
    TEST_ASSERT_NOT_NULL(file);
    memcpy(file, &longer, sizeof(longer));
    memcpy(file + 8, bytes + 8, longer - strlen(extra));
    memcpy(file + 8 + longer - strlen(extra), extra, strlen(extra));
    memcpy(file + 8 + longer, bytes + 8 + length, data);
    write_bytes(file, 8 + longer + data + 8);
    free(file);
    free(bytes);
    TRAIN("1x256M", "--hidden=8", "--steps=0", "--quiet", load);
    train_went_well();
}

static void test_weights_that_are_not_finite_are_not_saved(void)
{
    const float inf = INFINITY;
    FILE *file;

    TRAIN("1x256M", "--hidden=8", "--image=4", "--steps=0", "--quiet", save);
    train_went_well();
    file = fopen(path, "r+");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_INT(0, fseek(file, -(long)sizeof(inf), SEEK_END));
    TEST_ASSERT_EQUAL_size_t(1, fwrite(&inf, sizeof(inf), 1, file));
    fclose(file);
    TRAIN("1x256M", "--hidden=8", "--image=4", "--steps=0", "--quiet", load, save);
    TEST_ASSERT_EQUAL_INT(TRAIN_NOT_FINITE, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "is not finite: it is not saved"), train_said.err);
    TRAIN("1x256M", "--hidden=8", "--image=4", "--steps=0", "--quiet", "--on-nan=go", load, save);
    train_went_well();
}

static void test_a_path_that_cannot_be_written_is_refused_before_the_training(void)
{
    TRAIN("1x256M", "--hidden=8", "--steps=1000000000", "--quiet", "--save-weights=/no/such/folder/file");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "cannot be created"), train_said.err);
}

/* ---- dumps ---- */

static void test_a_dump_has_each_steps_batch_and_loss(void)
{
    struct safetensors_table table;
    char dump[PATH_ROOM];
    char *bytes;
    size_t count;
    uint64_t length;
    float loss;

    snprintf(dump, sizeof(dump), "--dump=%s", folder);
    TRAIN("1x256M", "--model=cnn", "--image=8", "--batch=3", "--steps=2", "--quiet", dump);
    train_went_well();
    snprintf(path, sizeof(path), "%s/step-000002.safetensors", folder);
    bytes = read_file(&count);
    memcpy(&length, bytes, sizeof(length));
    TEST_ASSERT_NULL(safetensors_parse(bytes + 8, length, count - 8 - length, &table));
    SHAPE(&table, "x", 4, 3, 8, 8, 3);
    TEST_ASSERT_NOT_NULL(safetensors_find(&table, "labels"));
    memcpy(&loss, bytes + 8 + length + safetensors_find(&table, "loss")->begin, sizeof(loss));
    TEST_ASSERT_EQUAL_FLOAT((float)atof(train_field("loss_last")), loss);
    safetensors_free(&table);
    free(bytes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_saved_weights_are_loaded_with_the_same_bits);
    RUN_TEST(test_replicas_load_and_save_one_set_of_weights);
    RUN_TEST(test_names_and_shapes_are_those_of_pytorchs_modules);
    RUN_TEST(test_bad_files_are_refused_with_a_reason);
    RUN_TEST(test_other_types_are_refused);
    RUN_TEST(test_tensors_that_mean_nothing_here_are_ignored);
    RUN_TEST(test_weights_that_are_not_finite_are_not_saved);
    RUN_TEST(test_a_path_that_cannot_be_written_is_refused_before_the_training);
    RUN_TEST(test_a_dump_has_each_steps_batch_and_loss);
    return UNITY_END();
}
