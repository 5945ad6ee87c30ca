/* A stand-in for libcuda.so.1 as far as opening CUDA and looking at the GPUs goes. FAKE_CUDA is the number of GPUs, or
 * the name of the error with which it does not start, such as SYSTEM_NOT_READY; "hang" never answers. FAKE_CUDA_SMS has
 * the multiprocessors of each, parted by commas (default 132). It shows what indexes in CUDA_VISIBLE_DEVICES leave.
 *
 * To TensorFlow, which wants more of a CUDA than this, it says that there is no device: its GPUs are those of fakegpu.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_DEVICE = 100 };
#define API __attribute__((visibility("default")))

static const char *wish(void) {
    const char *found = getenv("FAKE_CUDA");
    return found ? found : "1";
}

static int works(void) { return *wish() >= '0' && *wish() <= '9'; }

API int cuInit(unsigned flags) {
    (void)flags;
    while (!strcmp(wish(), "hang"))
        sleep(1);
    if (!works())
        return 802;
    return dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD) ? NO_DEVICE : 0;
}

/* The GPU in this place among the visible ones, or -1. */
static int visible(int ordinal) {
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    if (!at)
        return ordinal < atoi(wish()) ? ordinal : -1;
    for (; *at >= '0' && *at <= '9'; at += strspn(at, "0123456789"), at += strspn(at, ", "), ordinal--)
        if (!ordinal)
            return atoi(at) < atoi(wish()) ? atoi(at) : -1;
    return -1;
}

API int cuDeviceGetCount(int *count) {
    for (*count = 0; visible(*count) >= 0;)
        ++*count;
    return 0;
}

API int cuDeviceGet(int *device, int ordinal) {
    *device = visible(ordinal);
    return *device < 0 ? 101 : 0;
}

API int cuDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, size, "0000:%02x:00.0", device + 1);
    return 0;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)atoi(getenv("FAKE_CUDA_MIB") ? getenv("FAKE_CUDA_MIB") : "81559") << 20;
    return 0;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *at = getenv("FAKE_CUDA_SMS");
    for (*value = 132; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!device--)
            return *value = atoi(at), 0;
    return attribute == 16 ? 0 : 1;
}

API int cuGetErrorName(int error, const char **name) {
    static char text[80];
    snprintf(text, sizeof text, "CUDA_ERROR_%s", error == NO_DEVICE ? "NO_DEVICE" : wish());
    *name = text;
    return 0;
}

API int cuGetErrorString(int error, const char **words) {
    *words = error == NO_DEVICE ? "no CUDA-capable device is detected" : "system not yet initialized";
    return 0;
}
