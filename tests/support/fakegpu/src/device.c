/* A TensorFlow device of type GPU whose memory is the host's and whose time is simulated.
 *
 * Kernels and copies act at once, in the host's order, which TensorFlow keeps correct by itself. What comes later is
 * only the time at which they are said to be over: a stream is the moment until which it is busy, an event a moment
 * on a stream, and to wait for either is to sleep until then. So the host runs ahead of the device as it does with a
 * real one, without a thread and without a race.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fakegpu.h"
#include "tensorflow/c/tf_status.h"

typedef struct Gpu {
  int physical;
  int64_t allocated, peak, largest, allocations;
  int64_t busy_ns; /* all kernels so far */
  struct SP_Stream_st* streams;
  char name[160], bus[FAKEGPU_BUS];
} Gpu;

struct SP_Stream_st {
  Gpu* gpu;
  int64_t free_at;
  struct SP_Stream_st* next;
};
struct SP_Event_st {
  int64_t at;
};
struct SP_Timer_st {
  int64_t begin, end;
};

static Gpu gpus[MAX_GPUS];
static int64_t kernels; /* of all devices */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int64_t fakegpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static bool hung(void) {
  const Settings* s = fakegpu_settings();
  return (s->hang_after && kernels > s->hang_after) || (*s->hold && !access(s->hold, F_OK));
}

static void sleep_until(int64_t at) {
  struct timespec t = {at / 1000000000, at % 1000000000}, moment = {0, 20000};
  while (hung()) nanosleep(&moment, NULL); /* polling, as CUDA does */
  if (at > fakegpu_now())
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static void ok(TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

static Gpu* gpu_of(const SP_Device* device) { return device->device_handle; }

static void occupy(SP_Stream stream, int64_t ns) {
  int64_t now = fakegpu_now();
  if (stream->free_at < now) stream->free_at = now;
  stream->free_at += ns;
}

/* The stand-in for NVML can be told to watch for this file. */
static void tell_lost(const Settings* s) {
  static bool told = false;
  char name[300];
  if (told || !s->nvml[0]) return;
  told = true;
  snprintf(name, sizeof name, "%s.lost", s->nvml);
  FILE* file = fopen(name, "w");
  if (file) fclose(file);
}

static bool lost(void) {
  const Settings* s = fakegpu_settings();
  if (!s->lost_after || kernels <= s->lost_after) return false;
  tell_lost(s);
  return true;
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static int64_t free_bytes(const Gpu* gpu) {
  const Settings* s = fakegpu_settings();
  int64_t left = s->memory[gpu->physical] - s->used[gpu->physical] - gpu->allocated;
  return left > 0 ? left : 0;
}

int64_t fakegpu_free_bytes(int ordinal) {
  gpus[ordinal].physical = fakegpu_settings()->visible[ordinal];
  return free_bytes(&gpus[ordinal]);
}

static void allocate(const SP_Device* device, uint64_t size, int64_t space, SP_DeviceMemoryBase* memory) {
  (void)space;
  Gpu* gpu = gpu_of(device);
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = NULL;
  memory->size = 0;
  pthread_mutex_lock(&lock);
  if (size && (int64_t)size <= free_bytes(gpu)) {
    void* base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
      memory->opaque = base;
      memory->size = size;
      gpu->allocated += size;
      gpu->allocations++;
      if (gpu->allocated > gpu->peak) gpu->peak = gpu->allocated;
      if ((int64_t)size > gpu->largest) gpu->largest = size;
    }
  }
  pthread_mutex_unlock(&lock);
}

static void deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  if (!memory->opaque) return;
  munmap(memory->opaque, memory->size);
  pthread_mutex_lock(&lock);
  gpu_of(device)->allocated -= memory->size;
  pthread_mutex_unlock(&lock);
  memory->opaque = NULL;
  memory->size = 0;
}

static void* host_allocate(const SP_Device* device, uint64_t size) {
  (void)device;
  void* memory = NULL;
  return posix_memalign(&memory, 256, size) ? NULL : memory;
}

static void host_deallocate(const SP_Device* device, void* memory) {
  (void)device;
  free(memory);
}

static TF_Bool allocator_stats(const SP_Device* device, SP_AllocatorStats* stats) {
  Gpu* gpu = gpu_of(device);
  stats->struct_size = SP_ALLOCATORSTATS_STRUCT_SIZE;
  stats->num_allocs = gpu->allocations;
  stats->bytes_in_use = gpu->allocated;
  stats->peak_bytes_in_use = gpu->peak;
  stats->largest_alloc_size = gpu->largest;
  stats->has_bytes_limit = 1;
  stats->bytes_limit = fakegpu_settings()->memory[gpu->physical];
  return 1;
}

static TF_Bool memory_usage(const SP_Device* device, int64_t* free, int64_t* total) {
  pthread_mutex_lock(&lock);
  *free = free_bytes(gpu_of(device));
  *total = fakegpu_settings()->memory[gpu_of(device)->physical];
  pthread_mutex_unlock(&lock);
  return 1;
}

/* ---- streams ------------------------------------------------------------------------------------------------------- */

static void create_stream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  *stream = calloc(1, sizeof **stream);
  (*stream)->gpu = gpu_of(device);
  pthread_mutex_lock(&lock);
  (*stream)->next = gpu_of(device)->streams;
  gpu_of(device)->streams = *stream;
  pthread_mutex_unlock(&lock);
  ok(status);
}

static void destroy_stream(const SP_Device* device, SP_Stream stream) {
  pthread_mutex_lock(&lock);
  SP_Stream* place = &gpu_of(device)->streams;
  while (*place && *place != stream) place = &(*place)->next;
  if (*place) *place = stream->next;
  pthread_mutex_unlock(&lock);
  free(stream);
}

static void depend(const SP_Device* device, SP_Stream dependent, SP_Stream other, TF_Status* status) {
  (void)device;
  pthread_mutex_lock(&lock);
  if (dependent->free_at < other->free_at) dependent->free_at = other->free_at;
  pthread_mutex_unlock(&lock);
  ok(status);
}

static void stream_status(const SP_Device* device, SP_Stream stream, TF_Status* status) {
  (void)device, (void)stream;
  if (lost()) TF_SetStatus(status, TF_INTERNAL, "fakegpu: the GPU is lost");
  else ok(status);
}

static void wait_for_stream(const SP_Device* device, SP_Stream stream, TF_Status* status) {
  pthread_mutex_lock(&lock);
  int64_t at = stream->free_at;
  pthread_mutex_unlock(&lock);
  sleep_until(at);
  stream_status(device, stream, status);
}

static void wait_for_all(const SP_Device* device, TF_Status* status) {
  int64_t at = 0;
  pthread_mutex_lock(&lock);
  for (SP_Stream stream = gpu_of(device)->streams; stream; stream = stream->next)
    if (stream->free_at > at) at = stream->free_at;
  pthread_mutex_unlock(&lock);
  sleep_until(at);
  stream_status(device, NULL, status);
}

/* The function sees the host's memory as it is then: it waits until the stream has come so far, and holds the host. */
static TF_Bool host_callback(const SP_Device* device, SP_Stream stream, SE_StatusCallbackFn function, void* argument) {
  TF_Status* status = TF_NewStatus();
  wait_for_stream(device, stream, status);
  function(argument, status);
  TF_DeleteStatus(status);
  return 1;
}

void fakegpu_use(int64_t* bytes, int64_t* busy_ns) {
  const Settings* s = fakegpu_settings();
  for (int i = 0; i < MAX_GPUS; i++) bytes[i] = busy_ns[i] = 0;
  pthread_mutex_lock(&lock);
  int64_t now = fakegpu_now();
  for (int i = 0; i < s->visible_count; i++) {
    bytes[s->visible[i]] = gpus[i].allocated;
    int64_t ahead = 0; /* what has been handed over and is not done */
    for (SP_Stream stream = gpus[i].streams; stream; stream = stream->next)
      if (stream->free_at - now > ahead) ahead = stream->free_at - now;
    busy_ns[s->visible[i]] = gpus[i].busy_ns > ahead ? gpus[i].busy_ns - ahead : 0;
  }
  pthread_mutex_unlock(&lock);
}

void fakegpu_kernel(SP_Stream stream, const char* op, int64_t host_ns) {
  static FILE* log;
  const Settings* s = fakegpu_settings();
  int64_t ns = s->kernel_ns + (int64_t)(s->kernel_scale * (double)host_ns);
  pthread_mutex_lock(&lock);
  kernels++;
  occupy(stream, ns);
  stream->gpu->busy_ns += ns > host_ns ? ns : host_ns;
  if (*s->log) {
    if (!log) log = fopen(s->log, "a");
    int64_t end = stream->free_at;
    if (log) {
      fprintf(log, "%d gpu%d %s %.6f %.6f\n", (int)getpid(), stream->gpu->physical, op, (end - ns) / 1e9, end / 1e9);
      fflush(log);
    }
  }
  pthread_mutex_unlock(&lock);
}

/* ---- events and timers ---------------------------------------------------------------------------------------------- */

static void create_event(const SP_Device* device, SP_Event* event, TF_Status* status) {
  (void)device;
  *event = calloc(1, sizeof **event);
  ok(status);
}

static void destroy_event(const SP_Device* device, SP_Event event) {
  (void)device;
  free(event);
}

static SE_EventStatus event_status(const SP_Device* device, SP_Event event) {
  (void)device;
  if (lost()) return SE_EVENT_ERROR;
  if (hung()) return SE_EVENT_PENDING;
  pthread_mutex_lock(&lock);
  int64_t at = event->at;
  pthread_mutex_unlock(&lock);
  return at <= fakegpu_now() ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}

static void record_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  (void)device;
  pthread_mutex_lock(&lock);
  event->at = stream->free_at;
  pthread_mutex_unlock(&lock);
  ok(status);
}

static void stream_waits(const SP_Device* const device, SP_Stream stream, SP_Event event, TF_Status* const status) {
  (void)device;
  pthread_mutex_lock(&lock);
  if (stream->free_at < event->at) stream->free_at = event->at;
  pthread_mutex_unlock(&lock);
  ok(status);
}

static void host_waits(const SP_Device* device, SP_Event event, TF_Status* status) {
  pthread_mutex_lock(&lock);
  int64_t at = event->at;
  pthread_mutex_unlock(&lock);
  sleep_until(at);
  stream_status(device, NULL, status);
}

static void create_timer(const SP_Device* device, SP_Timer* timer, TF_Status* status) {
  (void)device;
  *timer = calloc(1, sizeof **timer);
  ok(status);
}

static void destroy_timer(const SP_Device* device, SP_Timer timer) {
  (void)device;
  free(timer);
}

static void start_timer(const SP_Device* device, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  (void)device;
  timer->begin = stream->free_at;
  ok(status);
}

static void stop_timer(const SP_Device* device, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  (void)device;
  timer->end = stream->free_at;
  ok(status);
}

static uint64_t timer_nanoseconds(SP_Timer timer) { return timer->end - timer->begin; }

/* ---- copies --------------------------------------------------------------------------------------------------------- */

static int64_t copy_time(uint64_t size) {
  const Settings* s = fakegpu_settings();
  return s->copy_ns + (s->copy_bytes_per_ns > 0 ? (int64_t)((double)size / s->copy_bytes_per_ns) : 0);
}

static void copied(SP_Stream stream, uint64_t size, TF_Status* status) {
  pthread_mutex_lock(&lock);
  occupy(stream, copy_time(size));
  pthread_mutex_unlock(&lock);
  ok(status);
}

static void dtoh(const SP_Device* device, SP_Stream stream, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
                 TF_Status* status) {
  (void)device;
  memcpy(to, from->opaque, size);
  copied(stream, size, status);
}

static void htod(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
                 TF_Status* status) {
  (void)device;
  memcpy(to->opaque, from, size);
  copied(stream, size, status);
}

static void dtod(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                 uint64_t size, TF_Status* status) {
  (void)device, (void)stream;
  memmove(to->opaque, from->opaque, size);
  ok(status);
}

static void dtoh_now(const SP_Device* device, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
                     TF_Status* status) {
  (void)device;
  memcpy(to, from->opaque, size);
  sleep_until(fakegpu_now() + copy_time(size));
  ok(status);
}

static void htod_now(const SP_Device* device, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
                     TF_Status* status) {
  (void)device;
  memcpy(to->opaque, from, size);
  sleep_until(fakegpu_now() + copy_time(size));
  ok(status);
}

static void dtod_now(const SP_Device* device, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from, uint64_t size,
                     TF_Status* status) {
  dtod(device, NULL, to, from, size, status);
}

static void set_zero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* place, uint64_t size,
                     TF_Status* status) {
  (void)device, (void)stream;
  memset(place->opaque, 0, size);
  ok(status);
}

static void set_bytes(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* place, uint8_t pattern,
                      uint64_t size, TF_Status* status) {
  (void)device, (void)stream;
  memset(place->opaque, pattern, size);
  ok(status);
}

static void set_words(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* place, uint32_t pattern,
                      uint64_t size, TF_Status* status) {
  (void)device, (void)stream;
  for (uint64_t i = 0; i < size / 4; i++) ((uint32_t*)place->opaque)[i] = pattern;
  ok(status);
}

/* ---- what TensorFlow asks for ---------------------------------------------------------------------------------------- */

static void create_stream_executor(const SP_Platform* platform, SE_CreateStreamExecutorParams* params,
                                   TF_Status* status) {
  (void)platform;
  *params->stream_executor = (SP_StreamExecutor){
      .struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE,
      .allocate = allocate,
      .deallocate = deallocate,
      .host_memory_allocate = host_allocate,
      .host_memory_deallocate = host_deallocate,
      .get_allocator_stats = allocator_stats,
      .device_memory_usage = memory_usage,
      .create_stream = create_stream,
      .destroy_stream = destroy_stream,
      .create_stream_dependency = depend,
      .get_stream_status = stream_status,
      .create_event = create_event,
      .destroy_event = destroy_event,
      .get_event_status = event_status,
      .record_event = record_event,
      .wait_for_event = stream_waits,
      .create_timer = create_timer,
      .destroy_timer = destroy_timer,
      .start_timer = start_timer,
      .stop_timer = stop_timer,
      .memcpy_dtoh = dtoh,
      .memcpy_htod = htod,
      .memcpy_dtod = dtod,
      .sync_memcpy_dtoh = dtoh_now,
      .sync_memcpy_htod = htod_now,
      .sync_memcpy_dtod = dtod_now,
      .block_host_for_event = host_waits,
      .block_host_until_done = wait_for_stream,
      .synchronize_all_activity = wait_for_all,
      .mem_zero = set_zero,
      .memset = set_bytes,
      .memset32 = set_words,
      .host_callback = host_callback,
  };
  ok(status);
}

static void device_count(const SP_Platform* platform, int* count, TF_Status* status) {
  (void)platform;
  *count = fakegpu_settings()->visible_count;
  ok(status);
}

static void create_device(const SP_Platform* platform, SE_CreateDeviceParams* params, TF_Status* status) {
  (void)platform;
  const Settings* s = fakegpu_settings();
  Gpu* gpu = &gpus[params->ordinal];
  fakegpu_tell_driver();
  gpu->physical = s->visible[params->ordinal];
  snprintf(gpu->name, sizeof gpu->name, "%s", s->name);
  fakegpu_bus(gpu->physical, gpu->bus);
  *params->device = (SP_Device){
      .struct_size = SP_DEVICE_STRUCT_SIZE,
      .ordinal = params->ordinal,
      .device_handle = gpu,
      .hardware_name = gpu->name,
      .device_vendor = "none",
      .pci_bus_id = gpu->bus,
  };
  ok(status);
}

static void destroy_device(const SP_Platform* platform, SP_Device* device) { (void)platform, (void)device; }

static int32_t numa_node(const SP_Device* device) {
  (void)device;
  return 0;
}

static void create_device_fns(const SP_Platform* platform, SE_CreateDeviceFnsParams* params, TF_Status* status) {
  (void)platform;
  *params->device_fns = (SP_DeviceFns){.struct_size = SP_DEVICE_FNS_STRUCT_SIZE, .get_numa_node = numa_node};
  ok(status);
}

static void create_timer_fns(const SP_Platform* platform, SP_TimerFns* fns, TF_Status* status) {
  (void)platform;
  *fns = (SP_TimerFns){.struct_size = SP_TIMER_FNS_STRUCT_SIZE, .nanoseconds = timer_nanoseconds};
  ok(status);
}

static void destroy_device_fns(const SP_Platform* platform, SP_DeviceFns* fns) { (void)platform, (void)fns; }
static void destroy_executor(const SP_Platform* platform, SP_StreamExecutor* se) { (void)platform, (void)se; }
static void destroy_timer_fns(const SP_Platform* platform, SP_TimerFns* fns) { (void)platform, (void)fns; }
static void destroy_platform(SP_Platform* platform) { (void)platform; }
static void destroy_platform_fns(SP_PlatformFns* fns) { (void)fns; }

void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "FAKEGPU";
  params->platform->type = "GPU";
  params->platform->supports_unified_memory = 0;
  params->platform->use_bfc_allocator = 1;
  params->platform->force_memory_growth = 0;
  *params->platform_fns = (SP_PlatformFns){
      .struct_size = SP_PLATFORM_FNS_STRUCT_SIZE,
      .get_device_count = device_count,
      .create_device = create_device,
      .destroy_device = destroy_device,
      .create_device_fns = create_device_fns,
      .destroy_device_fns = destroy_device_fns,
      .create_stream_executor = create_stream_executor,
      .destroy_stream_executor = destroy_executor,
      .create_timer_fns = create_timer_fns,
      .destroy_timer_fns = destroy_timer_fns,
  };
  params->destroy_platform = destroy_platform;
  params->destroy_platform_fns = destroy_platform_fns;
  ok(status);
}
