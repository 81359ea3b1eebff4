// The linker option --wrap=NAME makes a call of NAME in this extension a call of __wrap_NAME, in
// which __real_NAME is the function itself. CMakeLists.txt has the list.

#include "trainer/python/owned_descriptors.hpp"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

extern "C" {
int __real_close(int fd);
int __real_socket(int domain, int type, int protocol);
int __real_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
int __real_open(const char* path, int flags, ...);
int __real_fcntl(int fd, int command, ...);
int __real_epoll_create1(int flags);
int __real_eventfd(unsigned int count, int flags);
int __real_timerfd_create(int clock, int flags);
int __real_memfd_create(const char* name, unsigned int flags);
}

namespace waggle {

namespace {

/// Atomic bits instead of a lock, because another thread may hold a lock at the moment of a fork.
/// Larger descriptors stay open in children.
constexpr std::size_t descriptors_max = 65'536;
std::array<std::atomic<std::uint64_t>, descriptors_max / 64> owned;

std::uint64_t bit(int fd) {
  return std::uint64_t{1} << (static_cast<unsigned>(fd) % 64U);
}

int keep(int fd) {
  if (fd >= 0 && static_cast<std::size_t>(fd) < descriptors_max)
    owned[static_cast<std::size_t>(fd) / 64].fetch_or(bit(fd));
  return fd;
}

void forget(int fd) {
  if (fd >= 0 && static_cast<std::size_t>(fd) < descriptors_max)
    owned[static_cast<std::size_t>(fd) / 64].fetch_and(~bit(fd));
}

/// Calls async-signal-safe functions only, because other threads of the parent are gone.
void close_all() {
  for (std::size_t i = 0; i < owned.size(); ++i)
    if (auto bits = owned[i].exchange(0); bits != 0)
      for (int j = 0; j < 64; ++j)
        if ((bits & bit(j)) != 0)
          (void)__real_close(static_cast<int>(i * 64) + j);
}

} // namespace

void close_descriptors_after_fork() {
  (void)::pthread_atfork(nullptr, nullptr, close_all);
}

} // namespace waggle

extern "C" {

int __wrap_close(int fd) {
  waggle::forget(fd); // before another thread can get the same number
  return __real_close(fd);
}
int __wrap_socket(int domain, int type, int protocol) {
  return waggle::keep(__real_socket(domain, type, protocol));
}
int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return waggle::keep(__real_accept4(fd, address, length, flags));
}
int __wrap_open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : mode_t{0};
  va_end(more);
  return waggle::keep(__real_open(path, flags, mode));
}
int __wrap_fcntl(int fd, int command, ...) {
  std::va_list more;
  va_start(more, command);
  auto* argument = va_arg(more, void*); // or an int, passed in the same way
  va_end(more);
  auto out = __real_fcntl(fd, command, argument);
  return command == F_DUPFD_CLOEXEC ? waggle::keep(out) : out;
}
int __wrap_epoll_create1(int flags) {
  return waggle::keep(__real_epoll_create1(flags));
}
int __wrap_eventfd(unsigned int count, int flags) {
  return waggle::keep(__real_eventfd(count, flags));
}
int __wrap_timerfd_create(int clock, int flags) {
  return waggle::keep(__real_timerfd_create(clock, flags));
}
int __wrap_memfd_create(const char* name, unsigned int flags) {
  return waggle::keep(__real_memfd_create(name, flags));
}
}
