#include "runtime/cli/signals.hpp"

#include <csignal>
#include <utility>

namespace waggle {

namespace {

constexpr std::pair<int, const char*> held_signals[] = {{SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"},
                                                        {SIGHUP, "SIGHUP"},   {SIGUSR1, "SIGUSR1"},
                                                        {SIGUSR2, "SIGUSR2"}, {SIGQUIT, "SIGQUIT"}};
sigset_t held;      // once hold_signals has set it, it does not change
pthread_t receiver; // the thread that called hold_signals

/// LibTorch's libraries start threads before main, which block nothing.
void pass_on(int signal) {
  pthread_kill(receiver, signal);
}

} // namespace

void hold_signals() {
  sigemptyset(&held);
  receiver = pthread_self();
  for (auto [signal, name] : held_signals) {
    struct sigaction now {};
    // A blocked signal waits for sigtimedwait even if it is ignored. Under nohup, one that would
    // end the peer is left out. The others were not meant: a shell ignores SIGQUIT for all that it
    // starts in the background.
    bool taken = sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN;
    if (taken || request_of(signal) != signal_request::leave)
      sigaddset(&held, signal);
  }
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
  for (auto [signal, name] : held_signals)
    if (sigismember(&held, signal) == 1) {
      struct sigaction handler {};
      handler.sa_handler = pass_on;
      handler.sa_flags = SA_RESTART;
      sigaction(signal, &handler, nullptr);
    }
}

void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

std::optional<int> wait_for_signal(milliseconds timeout) {
  timespec wait{timeout.count() / 1000, (timeout.count() % 1000) * 1'000'000};
  auto signal = sigtimedwait(&held, nullptr, &wait);
  return signal > 0 ? std::optional{signal} : std::nullopt;
}

signal_request request_of(int signal) {
  return signal == SIGQUIT   ? signal_request::show_state
         : signal == SIGUSR2 ? signal_request::switch_debug
                             : signal_request::leave;
}

const char* name_of_signal(int signal) {
  for (auto [number, name] : held_signals)
    if (number == signal)
      return name;
  return "a signal";
}

bool told_to_end(milliseconds timeout) {
  auto signal = wait_for_signal(timeout);
  return signal && request_of(*signal) != signal_request::switch_debug;
}

} // namespace waggle
