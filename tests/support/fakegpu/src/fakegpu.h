/* What the parts of the stand-in share: its settings and the simulated time of its devices. */
#ifndef FAKEGPU_H
#define FAKEGPU_H

#include <stdbool.h>
#include <stdint.h>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

#define MAX_GPUS 16

typedef struct {
  int gpus;                    /* how many the machine has */
  int visible[MAX_GPUS];       /* the physical GPU that stands in each place, as CUDA_VISIBLE_DEVICES leaves them */
  int visible_count;
  char name[128];
  char capability[16];
  char uuid[MAX_GPUS][64];
  int64_t memory[MAX_GPUS];    /* bytes */
  int multiprocessors[MAX_GPUS];
  int64_t used[MAX_GPUS];      /* bytes that others have taken */
  int64_t kernel_ns;           /* simulated time of a kernel: this, ... */
  double kernel_scale;         /* ... and the host's time for it times this */
  int64_t copy_ns;             /* simulated time of a copy between host and device: this, ... */
  double copy_bytes_per_ns;    /* ... and its bytes divided by this; 0: no time */
  int64_t conv_scratch;        /* bytes that the first convolution of a process takes meanwhile, as cuDNN does to choose */
  int64_t lost_after;          /* the device is lost after so many kernels; 0: never */
  int64_t hang_after;          /* nothing ends any more after so many kernels; 0: never */
  char xla_fails[1024];        /* if not empty, XLA cannot compile anything for the device, and says this */
  char hold[256];              /* nothing ends while this file exists */
  char nvml[256];              /* beginning of the path of a file that tells the stand-in for NVML what is used */
  char log[256];               /* file that gets a line per kernel */
  char cpu[1024];              /* operations without a kernel for the GPU, between commas */
} Settings;

const Settings* fakegpu_settings(void);

#define FAKEGPU_BUS 32
void fakegpu_bus(int physical, char* text); /* the GPU's place on the PCI bus, as the stand-in for NVML has it */

int64_t fakegpu_free_bytes(int ordinal); /* of the GPU in this place among the visible */

/* Bytes that this process has taken of each physical GPU, and for how long it has kept each busy. */
void fakegpu_use(int64_t* bytes, int64_t* busy_ns);

void fakegpu_tell_driver(void); /* from its first call on, in a thread of its own */

int64_t fakegpu_now(void); /* nanoseconds of a steady clock */

/* The work of a kernel on a stream: it begins when the stream is free and takes so many nanoseconds. */
void fakegpu_kernel(SP_Stream stream, const char* op, int64_t host_ns);

#endif
