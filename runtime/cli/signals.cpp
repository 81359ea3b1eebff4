#include "runtime/cli/signals.hpp"

#include <csignal>

namespace waggle {

void hold_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool wait_for_signal(milliseconds timeout) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  timespec wait{timeout.count() / 1000, (timeout.count() % 1000) * 1'000'000};
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

} // namespace waggle
