/* Preloaded into a writer: notes every write, cut and flush of files under RECORD_UNDER in the file RECORD_TO, so that a test can
 * build the disk as a power loss would have left it. Records are: kind, length of path, offset, length of data, path, data. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int recorder = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void put(const void *data, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    while (length > 0) {
        ssize_t done = real(recorder, data, length);
        if (done <= 0) abort();
        data = (const char *)data + done;
        length -= done;
    }
}

static void note(char kind, int fd, int64_t offset, const void *data, uint32_t length) {
    const char *under = getenv("RECORD_UNDER"), *to = getenv("RECORD_TO");
    char link[64], path[4096];
    if (!under || !to) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = 0;
    if (strncmp(path, under, strlen(under)) != 0 || strcmp(path, to) == 0) return;
    pthread_mutex_lock(&lock);
    if (recorder < 0) recorder = open(to, O_WRONLY | O_CREAT | O_APPEND, 0644);
    uint32_t name = size;
    put(&kind, 1);
    put(&name, 4);
    put(&offset, 8);
    put(&length, 4);
    put(path, name);
    put(data, length);
    pthread_mutex_unlock(&lock);
}

#define REAL(name, result, ...) static result (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    REAL("pwrite64", ssize_t, int, const void *, size_t, off64_t);
    ssize_t done = real(fd, data, length, offset);
    if (done > 0) note('w', fd, offset, data, done);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

ssize_t write(int fd, const void *data, size_t length) {
    REAL("write", ssize_t, int, const void *, size_t);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real(fd, data, length);
    if (done > 0 && offset >= 0) note('w', fd, offset, data, done);
    return done;
}

int ftruncate64(int fd, off64_t length) {
    REAL("ftruncate64", int, int, off64_t);
    int result = real(fd, length);
    if (result == 0) note('t', fd, length, "", 0);
    return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fdatasync(int fd) {
    REAL("fdatasync", int, int);
    int result = real(fd);
    if (result == 0) note('s', fd, 0, "", 0);
    return result;
}

int fsync(int fd) {
    REAL("fsync", int, int);
    int result = real(fd);
    if (result == 0) note('s', fd, 0, "", 0);
    return result;
}
