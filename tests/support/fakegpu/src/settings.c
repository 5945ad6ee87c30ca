/* Settings: pairs key=value parted by semicolons in the variable FAKEGPU. Unknown keys are reported on stderr. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakegpu.h"

static Settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void take(const char* key, const char* value) {
  int gpu = -1, length = 0;
  double number = atof(value);
  if (sscanf(key, "gpu%d.%n", &gpu, &length) == 1 && length && gpu >= 0 && gpu < MAX_GPUS) {
    const char* of_gpu = key + length;
    if (!strcmp(of_gpu, "mem")) settings.memory[gpu] = (int64_t)(number * 1048576);
    else if (!strcmp(of_gpu, "used")) settings.used[gpu] = (int64_t)(number * 1048576);
    else if (!strcmp(of_gpu, "sms")) settings.multiprocessors[gpu] = (int)number;
    else if (!strcmp(of_gpu, "uuid")) snprintf(settings.uuid[gpu], sizeof settings.uuid[gpu], "%s", value);
    else fprintf(stderr, "fakegpu: unknown setting %s\n", key);
  } else if (!strcmp(key, "gpus")) {
    settings.gpus = number < 0 ? 0 : number > MAX_GPUS ? MAX_GPUS : (int)number;
  } else if (!strcmp(key, "mem")) {
    for (int i = 0; i < MAX_GPUS; i++) settings.memory[i] = (int64_t)(number * 1048576);
  } else if (!strcmp(key, "used")) {
    for (int i = 0; i < MAX_GPUS; i++) settings.used[i] = (int64_t)(number * 1048576);
  } else if (!strcmp(key, "name")) {
    snprintf(settings.name, sizeof settings.name, "%s", value);
  } else if (!strcmp(key, "cc")) {
    snprintf(settings.capability, sizeof settings.capability, "%s", value);
  } else if (!strcmp(key, "kernel_us")) {
    settings.kernel_ns = (int64_t)(number * 1000);
  } else if (!strcmp(key, "kernel_scale")) {
    settings.kernel_scale = number;
  } else if (!strcmp(key, "copy_us")) {
    settings.copy_ns = (int64_t)(number * 1000);
  } else if (!strcmp(key, "copy_gbs")) {
    settings.copy_bytes_per_ns = number;
  } else if (!strcmp(key, "conv_scratch")) {
    settings.conv_scratch = (int64_t)(number * 1048576);
  } else if (!strcmp(key, "lost_after")) {
    settings.lost_after = (int64_t)number;
  } else if (!strcmp(key, "hang_after")) {
    settings.hang_after = (int64_t)number;
  } else if (!strcmp(key, "xla_fails")) {
    snprintf(settings.xla_fails, sizeof settings.xla_fails, "%s", strcmp(value, "0") ? value : "");
  } else if (!strcmp(key, "hold")) {
    snprintf(settings.hold, sizeof settings.hold, "%s", value);
  } else if (!strcmp(key, "nvml")) {
    snprintf(settings.nvml, sizeof settings.nvml, "%s", value);
  } else if (!strcmp(key, "log")) {
    snprintf(settings.log, sizeof settings.log, "%s", value);
  } else if (!strcmp(key, "cpu")) {
    snprintf(settings.cpu, sizeof settings.cpu, ",%s,", value);
  } else {
    fprintf(stderr, "fakegpu: unknown setting %s\n", key);
  }
}

/* As CUDA reads it: indexes or beginnings of UUIDs, up to the first that names no GPU. */
static void choose(const char* wanted) {
  if (!wanted) {
    for (int i = 0; i < settings.gpus; i++) settings.visible[settings.visible_count++] = i;
    return;
  }
  char text[512], *rest = text, *word;
  snprintf(text, sizeof text, "%s", wanted);
  while ((word = strsep(&rest, ",")) && settings.visible_count < MAX_GPUS) {
    word += strspn(word, " ");
    int found = -1;
    char* end;
    long index = strtol(word, &end, 10);
    if (end != word && !*end && index >= 0 && index < settings.gpus) found = (int)index;
    for (int i = 0; !strncmp(word, "GPU-", 4) && i < settings.gpus; i++)
      if (!strncmp(settings.uuid[i], word, strlen(word))) found = i;
    if (found < 0) return;
    settings.visible[settings.visible_count++] = found;
  }
}

static void read_settings(void) {
  settings.gpus = 1;
  snprintf(settings.name, sizeof settings.name, "NVIDIA H100 80GB HBM3");
  snprintf(settings.capability, sizeof settings.capability, "9.0");
  for (int i = 0; i < MAX_GPUS; i++) {
    settings.memory[i] = 8192LL << 20;
    settings.multiprocessors[i] = 132;
    snprintf(settings.uuid[i], sizeof settings.uuid[i], "GPU-0000-%d", i);
  }
  const char* words = getenv("FAKEGPU");
  char* text = strdup(words ? words : "");
  char *rest = text, *word;
  while ((word = strsep(&rest, ";"))) {
    char* value = strchr(word, '=');
    if (!value) continue;
    *value++ = 0;
    take(word + strspn(word, " "), value);
  }
  free(text);
  choose(getenv("CUDA_VISIBLE_DEVICES"));
}

void fakegpu_bus(int physical, char* text) { snprintf(text, FAKEGPU_BUS, "0000:%02x:00.0", physical + 1); }

/* A process that was forked before it had a device has settings of its own. */
static void forget(void) {
  memset(&settings, 0, sizeof settings);
  once = (pthread_once_t)PTHREAD_ONCE_INIT;
}

static void read_first(void) {
  read_settings();
  pthread_atfork(NULL, NULL, forget);
}

const Settings* fakegpu_settings(void) {
  pthread_once(&once, read_first);
  return &settings;
}
