/* A stand-in for libnvidia-ml.so.1 with the faults of real machines, for tests through the real pynvml.
 *
 * FAKE_NVML holds words parted by blanks:
 *   gpus=2            how many (default 1)                unified=1|zero   memory is shared with the host
 *   init=18x2         nvmlInit fails so, only twice       na=1             figures that are marked not available
 *   init_ms=500       nvmlInit takes so long              mig=3@1          GPU 1 is in MIG mode, with so many instances
 *   fail=FUNC:3@1     FUNC fails with 3 on GPU 1          gpm=1            performance metrics, as from Hopper on
 *   slow_ms=50        each call on a GPU takes so long    name=bad         the name is no UTF-8
 *   hang=FUNC@1       FUNC never returns                  procs=12,34@1    ids of processes on each GPU (or on GPU 1)
 *   lost=1+30         GPU 1 is lost after 30 calls        log=FILE         a line per call: seconds function gpu note
 *   lost_when=FILE@1  GPU 1 is lost when there is a file  lost_code=999    how a lost GPU answers (default 15)
 *   nvlinks=18        links of each GPU                   gpm_lacks=20,21  metrics that are not supported
 *   nvlink_counters=0 the links have no counters          use=PREFIX       what the stand-in for TensorFlow's GPUs uses
 *   name=NVIDIA_T4@1  its name, blanks as underscores     mem_total=8192   its memory in MiB (all, or of one with @1)
 *   capability=8.9@1  its compute capability              mem_used=512     of that, taken by others
 *   driver=535.104    its version                     nvlinks_down=6   so many of the links are not active
 *   cores=16384@1     CUDA cores                      lanes=4/16@1     PCIe lanes, now and at most
 *   fabric=2          NVML's number of its state      compute_mode=2   NVML's number of the mode
 *   remap=1,0         a row waits for a reset, or     licensed=0@1     a virtual GPU without (1: with) its licence
 *                     could not be replaced           retired=1        a page waits for a reset, before Ampere
 *   ecc=0@1           off                             cpus=0xf0@1     a mask of the CPUs beside GPU 1
 *   uncorrected=2     errors of each GPU's memory     power_cap=300@1  watts that it may draw, of 700 by default
 *   slowed=20,50@1    percent of the time in which power and heat slow it    clock=600@1      of the SMs, in MHz
 *   worked=12,34      the processes that have used the GPUs in the last second, 40 % of it each
 *   xid=79@1          GPU 1 reports this error once, and with xid_when=FILE not before there is that file
 *   recovery=1@1      NVML's number of what it needs after an error
 *   throttle=8@1      NVML's bits for what slows it   loaded=2         the driver was loaded so often: an NVML that was
 *   also=FILE         more words, which go before         opened before fails
 *                     these, as soon as there is the file
 *   busy=80           a GPU that a program uses is at least so busy, also if the program gets no core
 *   graphics=12@1     ids of processes that draw on each GPU (or on GPU 1), 400 MiB each
 *   entry=32          the newest lists of processes have entries of 32 bytes, as in drivers 535.43 to 535.86
 * The MIG instances have the numbers 100, 101 ...: mem_used=512@100, procs=12@101.
 * FUNC is without the leading "nvml". Compiled with -DOLD the library lacks what came after the R470 driver.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, LOST = 15, WRONG_VERSION = 25, UNKNOWN = 999 };
enum { GPUS = 16, INSTANCE = 100 };
#define MIB (1024ULL * 1024)
#define GIB (1024 * MIB)
#define NA64 (~0ULL)
#define NA32 (~0U)

typedef struct { int index; } *Gpu;
typedef unsigned long long u64;
static struct { int index; } gpus[GPUS], instances[GPUS];
static int open_count, in_flight, init_calls, loaded, calls[GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what is wished ------------------------------------------------------- */

static const char *next_word(const char **from, const char *key) {
    size_t length = strlen(key);
    for (const char *at = *from; at && *at; at = strchr(at, ' ')) {
        while (*at == ' ')
            at++;
        if (!strncmp(at, key, length) && at[length] == '=') {
            *from = strchr(at, ' ');
            return at + length + 1;
        }
    }
    return *from = NULL;
}

/* The words, after those of the file that `also` names; whoever writes that one replaces it by another. */
static const char *words(void) {
    static char *all;
    static struct stat seen;
    static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
    const char *given = getenv("FAKE_NVML"), *from = given, *file = given ? next_word(&from, "also") : NULL;
    char name[512] = "", text[2048];
    struct stat now;
    if (file)
        snprintf(name, sizeof name, "%.*s", (int)strcspn(file, " "), file);
    if (!*name || stat(name, &now))
        return given;
    pthread_mutex_lock(&reading);
    if (!all || now.st_ino != seen.st_ino || memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim)) {
        FILE *stream = fopen(name, "r");
        int length = stream && fgets(text, sizeof text, stream) ? (int)strcspn(text, "\n") : -1;
        if (length >= 0 && asprintf(&all, "%.*s %s", length, text, given) > 0)
            seen = now; /* what was read before stays: others may be reading it */
        if (stream)
            fclose(stream);
    }
    pthread_mutex_unlock(&reading);
    return all ? all : given;
}

static const char *word(const char *key) {
    const char *from = words();
    return from ? next_word(&from, key) : NULL;
}

static long number(const char *key, long otherwise) {
    const char *value = word(key);
    return value ? atol(value) : otherwise;
}

static int is(const char *key, const char *value) {
    const char *found = word(key);
    return found && !strncmp(found, value, strlen(value));
}

/* The value of KEY=VALUE[@GPU] for this GPU; one that names the GPU goes before one for all. */
static const char *word_of(const char *key, int gpu) {
    const char *from = words(), *for_all = NULL;
    while (from && *from) {
        const char *value = next_word(&from, key), *at = value ? memchr(value, '@', strcspn(value, " ")) : NULL;
        if (at && atoi(at + 1) == gpu)
            return value;
        if (value && !at)
            for_all = value;
    }
    return for_all;
}

static int listed(const char *key, int wanted) {
    const char *list = word(key);
    for (const char *at = list; at && *at && *at != ' '; at += strcspn(at, ", "), at += *at == ',')
        if (atoi(at) == wanted)
            return 1;
    return 0;
}

/* A rule FUNC[:CODE][@GPU] that is about this call: its code, or 1 without one. */
static int rule(const char *key, const char *function, int gpu) {
    const char *from = words();
    while (from && *from) {
        const char *value = next_word(&from, key);
        size_t length = strlen(function);
        if (!value)
            return 0;
        if (strncmp(value, function, length) || !strchr(":@ ", value[length]))
            continue;
        const char *end = value + strcspn(value, " "), *at = memchr(value, '@', end - value);
        const char *code = memchr(value, ':', end - value);
        if (!at || atoi(at + 1) == gpu)
            return code ? atoi(code + 1) : 1;
    }
    return 0;
}

static int path(const char *key, char *name, size_t size) {
    const char *value = word(key);
    if (value)
        snprintf(name, size, "%.*s", (int)strcspn(value, " @"), value);
    return value != NULL;
}

static int lost_by_file(int gpu) {
    char name[512];
    if (!path("lost_when", name, sizeof name) || access(name, F_OK))
        return 0;
    const char *at = strchr(word("lost_when"), '@');
    return at && atoi(at + 1) == gpu;
}

/* How a lost GPU answers; the library itself knows the handle of one that only fails. */
static int lost_code(const char *function) {
    int code = number("lost_code", LOST);
    return code == LOST || strcmp(function, "DeviceGetHandleByIndex_v2") ? code : OK;
}

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void note(const char *function, int gpu, const char *what) {
    char name[512];
    FILE *file = path("log", name, sizeof name) ? fopen(name, "a") : NULL;
    if (!file)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(file, "%.3f %s %d %s\n", now.tv_sec + now.tv_nsec / 1e9, function, gpu, what);
    fclose(file);
}

/* ---- every call ----------------------------------------------------------- */

static void leave(int *entered) {
    if (*entered)
        __atomic_sub_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
}

static int enter(const char *function, int gpu) {
    int real = gpu % INSTANCE, lost = 0;
    const char *which = word("lost");
    __atomic_add_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
    note(function, gpu, open_count ? "" : "CLOSED");
    if (number("loaded", 1) != loaded)
        return UNKNOWN;
    if (gpu < 0)
        return rule("fail", function, gpu);
    pthread_mutex_lock(&lock);
    calls[real]++;
    if (which && atoi(which) == real && strchr(which, '+'))
        lost = calls[real] > atoi(strchr(which, '+') + 1);
    pthread_mutex_unlock(&lock);
    while (rule("hang", function, real))
        sleep_ms(1000);
    sleep_ms(number("slow_ms", 0));
    return lost || lost_by_file(real) ? lost_code(function) : rule("fail", function, real);
}

#define CALL(name, gpu) \
    int entered __attribute__((cleanup(leave))) = 1, fault = enter(name, gpu); \
    if (fault) \
        return fault

/* ---- events: errors of GPUs ------------------------------------------------ */

enum { TIMEOUT = 10, XID = 8 };
typedef struct { void *gpu; u64 type, data; unsigned instance, part; } Event;
static u64 listens, told; /* to which GPUs, and of which */

API int nvmlEventSetCreate(void **set) {
    CALL("EventSetCreate", -1);
    *set = &listens;
    return OK;
}

API int nvmlEventSetFree(void *set) {
    CALL("EventSetFree", -1);
    *(u64 *)set = told = 0;
    return OK;
}

API int nvmlDeviceRegisterEvents(Gpu gpu, u64 types, void *set) {
    CALL("DeviceRegisterEvents", gpu->index);
    if (types & XID)
        *(u64 *)set |= 1ULL << gpu->index;
    return OK;
}

API int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
    CALL("EventSetWait_v2", -1);
    char file[512];
    if (path("xid_when", file, sizeof file) && access(file, F_OK)) {
        sleep_ms(timeout_ms);
        return TIMEOUT;
    }
    for (int i = 0; i < GPUS; i++) {
        const char *xid = word_of("xid", i);
        if (!xid || !(*(u64 *)set & ~told & 1ULL << i))
            continue;
        told |= 1ULL << i;
        *event = (Event){&gpus[i], XID, atoi(xid), ~0U, ~0U};
        return OK;
    }
    sleep_ms(timeout_ms);
    return TIMEOUT;
}

/* ---- the library ---------------------------------------------------------- */

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *init = word("init");
    note("InitWithFlags", -1, "");
    sleep_ms(number("init_ms", 0));
    const char *times = init ? strpbrk(init, "x ") : NULL;
    if (init && (!times || *times != 'x' || init_calls++ < atoi(times + 1)))
        return atoi(init);
    for (int i = 0; i < GPUS; i++)
        gpus[i].index = i, instances[i].index = INSTANCE + i;
    loaded = number("loaded", 1);
    open_count++;
    return OK;
}

API int nvmlShutdown(void) {
    note("Shutdown", -1, in_flight ? "IN_FLIGHT" : "");
    open_count--;
    return OK;
}

API const char *nvmlErrorString(int code) {
    static char text[40];
    snprintf(text, sizeof text, "error %d", code);
    return text;
}

API int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    CALL("SystemGetDriverVersion", -1);
    const char *version = word("driver");
    snprintf(text, size, "%.*s", version ? (int)strcspn(version, " ") : 6, version ? version : "580.10");
    return OK;
}

API int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    CALL("SystemGetNVMLVersion", -1);
    snprintf(text, size, "13.580.10");
    return OK;
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    CALL("SystemGetCudaDriverVersion_v2", -1);
    *version = number("cuda", 13000);
    return OK;
}

API int nvmlDeviceGetCount_v2(unsigned *count) {
    CALL("DeviceGetCount_v2", -1);
    *count = number("gpus", 1);
    return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    CALL("DeviceGetHandleByIndex_v2", index);
    if (index >= number("gpus", 1))
        return INVALID;
    *gpu = &gpus[index];
    return OK;
}

API int nvmlDeviceGetUUID(Gpu gpu, char *text, unsigned size) {
    CALL("DeviceGetUUID", gpu->index);
    snprintf(text, size, gpu->index < INSTANCE ? "GPU-0000-%d" : "MIG-0000-%d", gpu->index);
    return OK;
}

API int nvmlDeviceGetName(Gpu gpu, char *text, unsigned size) {
    CALL("DeviceGetName", gpu->index);
    const char *name = word_of("name", gpu->index % INSTANCE);
    if (!name)
        name = "NVIDIA_H100_80GB_HBM3";
    else if (!strncmp(name, "bad", 3))
        name = "Chip_\xff\xfe";
    snprintf(text, size, "%.*s", (int)strcspn(name, " @"), name);
    for (char *at = text; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return OK;
}

API int nvmlDeviceGetPciInfo_v3(Gpu gpu, char *info) {
    CALL("DeviceGetPciInfo_v3", gpu->index);
    memset(info, 0, 68);
    snprintf(info + 36, 32, "00000000:%02X:00.0", gpu->index + 1);
    return OK;
}

API int nvmlDeviceGetCudaComputeCapability(Gpu gpu, int *major, int *minor) {
    CALL("DeviceGetCudaComputeCapability", gpu->index);
    const char *value = word_of("capability", gpu->index % INSTANCE), *dot = value ? strpbrk(value, ". @") : NULL;
    *major = value ? atoi(value) : 9, *minor = dot && *dot == '.' ? atoi(dot + 1) : 0;
    return OK;
}

/* ---- what the stand-in for TensorFlow's GPUs uses: files PREFIX.PID with lines "GPU MIB PERCENT" ---- */

typedef struct { int pid, mib, percent; } Use;

static int uses(int gpu, Use *found, int room) {
    char pattern[512];
    int count = 0;
    if (!path("use", pattern, sizeof pattern - 8))
        return 0;
    strcat(pattern, ".[0-9]*");
    glob_t files;
    if (glob(pattern, 0, NULL, &files))
        return 0;
    for (size_t i = 0; i < files.gl_pathc && count < room; i++) {
        FILE *file = fopen(files.gl_pathv[i], "r");
        int pid = atoi(strrchr(files.gl_pathv[i], '.') + 1), which, mib, percent;
        while (file && fscanf(file, "%d %d %d", &which, &mib, &percent) == 3)
            /* A process that was killed leaves its file; one of another user is alive. */
            if (which == gpu && mib && (!kill(pid, 0) || errno == EPERM))
                found[count++] = (Use){pid, mib, percent};
        if (file)
            fclose(file);
    }
    globfree(&files);
    return count;
}

enum { USES = 32 };

static Use total_use(int gpu) {
    Use found[USES], sum = {0};
    for (int i = 0, count = uses(gpu, found, USES); i < count; i++)
        sum.mib += found[i].mib, sum.percent += found[i].percent;
    sum.percent = sum.percent > 100 ? 100 : sum.percent;
    return sum;
}

typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;

static int memory(Gpu gpu, u64 *total, u64 *used, u64 *free, u64 reserved) {
    if (is("unified", "1"))
        return UNSUPPORTED;
    const char *mib = word_of("mem_total", gpu->index), *taken = word_of("mem_used", gpu->index);
    *total = is("unified", "zero") ? 0 : mib ? atoi(mib) * MIB : (gpu->index < INSTANCE ? 80 : 20) * GIB;
    *used = is("unified", "zero") ? 0 : taken ? atoi(taken) * MIB : word("use") ? 0 : 10 * GIB;
    *used += total_use(gpu->index).mib * MIB;
    *free = *total > *used + reserved ? *total - *used - reserved : 0;
    if (is("na", "1"))
        *used = *free = NA64;
    return OK;
}

API int nvmlDeviceGetMemoryInfo(Gpu gpu, Memory *info) {
    CALL("DeviceGetMemoryInfo", gpu->index);
    return memory(gpu, &info->total, &info->used, &info->free, 0);
}

static int mig_mode(Gpu gpu) {
    const char *value = word("mig"), *at = value ? memchr(value, '@', strcspn(value, " ")) : NULL;
    return value && (!at || atoi(at + 1) == gpu->index);
}

API int nvmlDeviceGetUtilizationRates(Gpu gpu, unsigned *rates) {
    CALL("DeviceGetUtilizationRates", gpu->index);
    if (mig_mode(gpu))
        return UNSUPPORTED;
    Use use = total_use(gpu->index);
    long least = use.mib ? number("busy", 0) : 0;
    rates[0] = !word("use") ? 37 : use.percent > least ? use.percent : least, rates[1] = 12;
    return OK;
}

/* The first number of a word that is about this GPU, or the second of one such as 4/16. */
static long part_of(const char *key, Gpu gpu, int second, long otherwise) {
    const char *value = word_of(key, gpu->index % INSTANCE);
    if (value && second)
        value = strpbrk(value, "/, @"), value = value && strchr("/,", *value) ? value + 1 : NULL;
    return value ? atol(value) : otherwise;
}

#define SIMPLE(name, value) \
    API int nvml##name(Gpu gpu, unsigned *result) { \
        CALL(#name, gpu->index); \
        *result = (value); \
        return OK; \
    }
static long watts(Gpu gpu) { return part_of("power_cap", gpu, 0, 700) < 321 ? part_of("power_cap", gpu, 0, 700) : 321; }

SIMPLE(DeviceGetPowerUsage, is("na", "1") ? NA32 : 1000 * watts(gpu))
SIMPLE(DeviceGetEnforcedPowerLimit, 1000 * part_of("power_cap", gpu, 0, 700))
SIMPLE(DeviceGetPowerManagementDefaultLimit, 700000)
SIMPLE(DeviceGetPerformanceState, 0)
SIMPLE(DeviceGetPersistenceMode, 1)
SIMPLE(DeviceGetMaxMigDeviceCount, 7)
SIMPLE(DeviceGetComputeMode, part_of("compute_mode", gpu, 0, 0))
SIMPLE(DeviceGetCurrPcieLinkWidth, part_of("lanes", gpu, 0, 16))
SIMPLE(DeviceGetMaxPcieLinkWidth, part_of("lanes", gpu, 1, 16))
SIMPLE(DeviceGetRetiredPagesPendingStatus, part_of("retired", gpu, 0, 0))

API int nvmlDeviceGetNvLinkState(Gpu gpu, unsigned link, unsigned *active) {
    CALL("DeviceGetNvLinkState", gpu->index);
    *active = link >= number("nvlinks_down", 0);
    return OK;
}

API int nvmlDeviceGetCpuAffinity(Gpu gpu, unsigned words, unsigned long *mask) {
    CALL("DeviceGetCpuAffinity", gpu->index);
    const char *value = word_of("cpus", gpu->index);
    if (!value)
        return UNSUPPORTED;
    memset(mask, 0, words * sizeof *mask);
    mask[0] = strtoul(value, NULL, 0);
    return OK;
}

API int nvmlDeviceGetTemperature(Gpu gpu, int sensor, unsigned *celsius) {
    (void)sensor;
    CALL("DeviceGetTemperature", gpu->index);
    *celsius = 55;
    return OK;
}

API int nvmlDeviceGetClockInfo(Gpu gpu, int kind, unsigned *mhz) {
    CALL("DeviceGetClockInfo", gpu->index);
    *mhz = kind == 1 ? part_of("clock", gpu, 0, 1980) : 2619;
    return OK;
}

API int nvmlDeviceGetMaxClockInfo(Gpu gpu, int kind, unsigned *mhz) {
    CALL("DeviceGetMaxClockInfo", gpu->index);
    *mhz = kind == 1 ? 1980 : 2619;
    return OK;
}

static u64 now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

API int nvmlDeviceGetTotalEnergyConsumption(Gpu gpu, u64 *millijoules) {
    CALL("DeviceGetTotalEnergyConsumption", gpu->index);
    *millijoules = now_ns() / 1000000 * watts(gpu);
    return OK;
}

typedef struct { u64 reference, violation; } Violation;

API int nvmlDeviceGetViolationStatus(Gpu gpu, int policy, Violation *time) {
    CALL("DeviceGetViolationStatus", gpu->index);
    if (policy > 1 && policy != 3)
        return UNSUPPORTED;
    time->reference = now_ns() / 1000, time->violation = policy > 1 ? 0 : now_ns() / 100 * part_of("slowed", gpu, policy, 0);
    return OK;
}

API int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu gpu, u64 *bits) {
    CALL("DeviceGetCurrentClocksThrottleReasons", gpu->index);
    *bits = part_of("throttle", gpu, 0, 0);
    return OK;
}

API int nvmlDeviceGetTotalEccErrors(Gpu gpu, int kind, int counter, u64 *count) {
    (void)counter;
    CALL("DeviceGetTotalEccErrors", gpu->index);
    *count = kind ? number("uncorrected", 0) : 4;
    return OK;
}

API int nvmlDeviceGetEccMode(Gpu gpu, unsigned *now, unsigned *later) {
    CALL("DeviceGetEccMode", gpu->index);
    *now = *later = part_of("ecc", gpu, 0, 1);
    return OK;
}

API int nvmlDeviceGetMigMode(Gpu gpu, unsigned *now, unsigned *later) {
    CALL("DeviceGetMigMode", gpu->index);
    *now = *later = mig_mode(gpu);
    return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Gpu gpu, unsigned position, void **instance) {
    CALL("DeviceGetMigDeviceHandleByIndex", gpu->index);
    if (position >= number("mig", 0))
        return NOT_FOUND;
    *instance = &instances[position];
    return OK;
}

API int nvmlDeviceGetGpuInstanceId(Gpu gpu, unsigned *id) {
    CALL("DeviceGetGpuInstanceId", gpu->index);
    *id = gpu->index - INSTANCE + 1;
    return OK;
}

API int nvmlDeviceGetPcieThroughput(Gpu gpu, int counter, unsigned *kib) {
    CALL("DeviceGetPcieThroughput", gpu->index);
    sleep_ms(20);
    *kib = counter ? 2000 : 1000;
    return OK;
}

typedef struct { unsigned pid; u64 bytes; unsigned instance, part; } Process;

/* Appends the processes of a list of ids parted by commas. */
static void append(const char *list, u64 bytes, unsigned room, unsigned *count, Process *found) {
    for (const char *at = list; at && *at && *at != ' ' && *at != '@'; at += strcspn(at, ",@ "), at += *at == ',', ++*count)
        if (found && *count < room)
            found[*count] = (Process){atoi(at), is("na", "1") ? NA64 : bytes, 0, 0};
}

static int processes(int gpu, unsigned *count, Process *found) {
    unsigned room = *count;
    Use used[USES];
    *count = 0;
    for (int i = 0, all = uses(gpu, used, USES); i < all; i++, ++*count)
        if (found && *count < room)
            found[*count] = (Process){used[i].pid, used[i].mib * MIB, 0, 0};
    append(word_of("procs", gpu), GIB, room, count, found);
    return found || !*count ? OK : SMALL;
}

static int graphics(int gpu, unsigned *count, Process *found) {
    unsigned room = *count;
    *count = 0;
    append(word_of("graphics", gpu), 400 * MIB, room, count, found);
    return found || !*count ? OK : SMALL;
}

typedef struct { Process process; u64 protected; } LongProcess;

/* The answer of the newest function: with entry=32 in the longer entries, of which the last comes first. */
static int newest(int code, unsigned count, Process *found) {
    if (!code && found && number("entry", 24) == 32)
        for (int i = count - 1; i >= 0; i--) {
            LongProcess entry = {found[i], 0};
            memcpy((char *)found + i * sizeof entry, &entry, sizeof entry);
        }
    return code;
}

typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } Work;

API int nvmlDeviceGetProcessUtilization(Gpu gpu, Work *found, unsigned *count, u64 since) {
    CALL("DeviceGetProcessUtilization", gpu->index);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *list = word("worked");
    unsigned room = *count;
    *count = 0;
    if (mig_mode(gpu))
        return UNSUPPORTED;
    for (const char *at = list; at && *at && *at != ' '; at += strcspn(at, ", "), at += *at == ',', ++*count)
        if (found && *count < room)
            found[*count] = (Work){atoi(at), now.tv_sec * 1000000ULL + now.tv_nsec / 1000, 40, 10, 0, 0};
    return !*count ? NOT_FOUND : found ? OK : SMALL;
}

#define PROCESSES(name, answer) \
    API int nvml##name(Gpu gpu, unsigned *count, Process *found) { \
        CALL(#name, gpu->index); \
        return answer; \
    }
PROCESSES(DeviceGetComputeRunningProcesses_v2, processes(gpu->index, count, found))
PROCESSES(DeviceGetGraphicsRunningProcesses_v2, graphics(gpu->index, count, found))

#ifndef OLD /* what came after R470 */
PROCESSES(DeviceGetComputeRunningProcesses_v3, newest(processes(gpu->index, count, found), *count, found))
PROCESSES(DeviceGetGraphicsRunningProcesses_v3, newest(graphics(gpu->index, count, found), *count, found))

API int nvmlDeviceGetMemoryInfo_v2(Gpu gpu, Memory2 *info) {
    CALL("DeviceGetMemoryInfo_v2", gpu->index);
    if (info->version != (sizeof(Memory2) | 2 << 24))
        return WRONG_VERSION;
    info->reserved = word("use") ? 0 : GIB / 2;
    return memory(gpu, &info->total, &info->used, &info->free, info->reserved);
}

API int nvmlDeviceGetNumGpuCores(Gpu gpu, unsigned *cores) {
    CALL("DeviceGetNumGpuCores", gpu->index);
    *cores = part_of("cores", gpu, 0, 16896);
    return OK;
}

API int nvmlDeviceGetRemappedRows(Gpu gpu, unsigned *right, unsigned *wrong, unsigned *waits, unsigned *failed) {
    CALL("DeviceGetRemappedRows", gpu->index);
    if (word_of("retired", gpu->index % INSTANCE)) /* a chip before Ampere */
        return UNSUPPORTED;
    *right = *wrong = 0;
    *waits = part_of("remap", gpu, 0, 0), *failed = part_of("remap", gpu, 1, 0);
    return OK;
}

typedef struct { unsigned version; unsigned char uuid[16]; unsigned result, clique; unsigned char state; } Fabric;

API int nvmlDeviceGetGpuFabricInfoV(Gpu gpu, Fabric *info) {
    CALL("DeviceGetGpuFabricInfoV", gpu->index);
    info->result = 0, info->clique = 0, info->state = part_of("fabric", gpu, 0, 0);
    return OK;
}

API int nvmlDeviceGetVirtualizationMode(Gpu gpu, u64 *mode) {
    CALL("DeviceGetVirtualizationMode", gpu->index);
    *mode = word_of("licensed", gpu->index % INSTANCE) ? 2 : 0;
    return OK;
}

typedef struct { int code; unsigned state; char info[128], product[128]; unsigned enabled, expiry[4]; } Feature;
typedef struct { int supported; unsigned count; Feature features[3]; } Features;

API int nvmlDeviceGetGridLicensableFeatures_v4(Gpu gpu, Features *found) {
    CALL("DeviceGetGridLicensableFeatures_v4", gpu->index);
    found->supported = found->count = found->features[0].enabled = 1;
    found->features[0].state = part_of("licensed", gpu, 0, 0);
    return OK;
}

typedef struct { unsigned version; int sensor, celsius; } Temperature;

API int nvmlDeviceGetTemperatureV(Gpu gpu, Temperature *answer) {
    CALL("DeviceGetTemperatureV", gpu->index);
    if (answer->version != (sizeof(Temperature) | 1 << 24))
        return WRONG_VERSION;
    if (answer->sensor)
        return INVALID;
    answer->celsius = 56;
    return OK;
}

API int nvmlDeviceGetCurrentClocksEventReasons(Gpu gpu, u64 *bits) {
    CALL("DeviceGetCurrentClocksEventReasons", gpu->index);
    *bits = part_of("throttle", gpu, 0, 0);
    return OK;
}

typedef struct { unsigned id; int result; double value; void *info[3]; } Metric;
typedef struct { unsigned version, count; void *first, *second; Metric metrics[]; } Metrics;

API int nvmlGpmQueryDeviceSupport(Gpu gpu, unsigned *support) {
    CALL("GpmQueryDeviceSupport", gpu->index);
    support[1] = number("gpm", 0);
    return OK;
}

/* A sample: its time, and the id of the GPU instance, 0 for the whole GPU, by which the figures of instances differ. */
typedef struct { double time; unsigned instance; } Sample;

API int nvmlGpmSampleAlloc(void **sample) {
    CALL("GpmSampleAlloc", -1);
    *sample = calloc(1, sizeof(Sample));
    return OK;
}

API int nvmlGpmSampleFree(void *sample) {
    CALL("GpmSampleFree", -1);
    free(sample);
    return OK;
}

static void sampled(Sample *sample, unsigned instance) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *sample = (Sample){now.tv_sec + now.tv_nsec / 1e9, instance};
}

API int nvmlGpmSampleGet(Gpu gpu, Sample *sample) {
    CALL("GpmSampleGet", gpu->index);
    sampled(sample, 0);
    return OK;
}

API int nvmlGpmMigSampleGet(Gpu gpu, unsigned instance, Sample *sample) {
    CALL("GpmMigSampleGet", gpu->index);
    sampled(sample, instance);
    return OK;
}

API int nvmlGpmMetricsGet(Metrics *get) {
    CALL("GpmMetricsGet", -1);
    const Sample *first = get->first, *second = get->second;
    if (second->time - first->time < 0.1 || first->instance != second->instance)
        return INVALID;
    for (unsigned i = 0; i < get->count; i++) {
        get->metrics[i].result = get->metrics[i].id == 10 || listed("gpm_lacks", get->metrics[i].id) ? UNSUPPORTED : OK;
        get->metrics[i].value = get->metrics[i].id * 10 + second->instance;
    }
    return OK;
}
#endif

typedef struct { unsigned id, scope; long long time, latency; unsigned type; int result; u64 value; } Field;

enum { LINK_COUNT = 91, SENT = 138, RECEIVED = 139, RECOVERY_ACTION = 230 };

/* NVLink: the number of links, and counters in KiB that grow by 1024 (received) and 3072 (sent) a reading. */
API int nvmlDeviceGetFieldValues(Gpu gpu, int count, Field *fields) {
    CALL("DeviceGetFieldValues", gpu->index);
    static u64 readings[GPUS];
    readings[gpu->index]++;
    for (int i = 0; i < count; i++) {
        int links = fields[i].id == LINK_COUNT, each = fields[i].id == SENT ? 3072 : 1024;
        fields[i].result = number("nvlinks", 0) && (links || number("nvlink_counters", 1)) ? OK : UNSUPPORTED;
        fields[i].type = links ? 1 : 3;
        const char *recovery = fields[i].id == RECOVERY_ACTION ? word_of("recovery", gpu->index) : NULL;
        if (fields[i].id == RECOVERY_ACTION) {
            fields[i].result = recovery ? OK : UNSUPPORTED;
            fields[i].type = 1;
            fields[i].value = recovery ? (u64)atoi(recovery) : 0;
            continue;
        }
        fields[i].value = links ? (u64)number("nvlinks", 0) : each * readings[gpu->index];
    }
    return OK;
}
