/* A stand-in for libcuda.so.1 as far as opening CUDA goes. FAKE_CUDA is the number of GPUs that it shows, or the name
 * of the error with which it does not start, such as SYSTEM_NOT_READY; "hang" never answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static const char *wish(void) {
    const char *found = getenv("FAKE_CUDA");
    return found ? found : "1";
}

API int cuInit(unsigned flags) {
    (void)flags;
    while (!strcmp(wish(), "hang"))
        sleep(1);
    return *wish() >= '0' && *wish() <= '9' ? 0 : 802;
}

API int cuDeviceGetCount(int *count) {
    *count = atoi(wish());
    return 0;
}

API int cuGetErrorName(int error, const char **name) {
    static char text[80];
    (void)error;
    snprintf(text, sizeof text, "CUDA_ERROR_%s", wish());
    *name = text;
    return 0;
}
