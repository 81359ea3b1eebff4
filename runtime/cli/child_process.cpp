#include "runtime/cli/child_process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cli/command_line.hpp"
#include "runtime/config/options.hpp"

namespace waggle {

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return "by signal " + std::to_string(WTERMSIG(status));
  return "with exit code " + std::to_string(WEXITSTATUS(status));
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

result<child_process> child_process::start(const std::vector<std::string>& arguments,
                                           const std::filesystem::path& log) {
  std::vector<char*> argv;
  for (const auto& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (const auto* variable : without_options(environ))
    environment.push_back(const_cast<char*>(variable));
  environment.push_back(nullptr);
  int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out < 0)
    return failure{ec::io_error, "cannot write " + log.string() + ": " + std::strerror(errno)};
  auto parent = ::getpid();
  auto pid = ::fork();
  if (pid == 0) {
    // Only async-signal-safe calls are allowed between fork and exec.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent)
      ::_exit(127);
    ::setpgid(0, 0); // Ctrl-C in the terminal goes to the parent only, which then ends the child
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execve(argv[0], argv.data(), environment.data());
    ::_exit(127);
  }
  ::close(out);
  if (pid < 0)
    return failure{ec::io_error, std::string{"cannot start a process: "} + std::strerror(errno)};
  return child_process{pid, log};
}

child_process::child_process(child_process&& other) noexcept
  : pid_(std::exchange(other.pid_, -1)), log_(std::move(other.log_)), status_(other.status_) {}

child_process::~child_process() {
  if (pid_ <= 0 || ended())
    return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void child_process::signal(int number) const {
  if (pid_ > 0 && !status_)
    ::kill(pid_, number);
}

std::optional<int> child_process::ended() {
  int status = 0;
  if (pid_ > 0 && !status_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    status_ = status;
  return status_;
}

std::string child_process::end_of_log() const {
  constexpr std::size_t length = 2000;
  auto text = content_of(log_);
  return text.substr(text.size() - std::min(text.size(), length));
}

failure child_process::ended_early() {
  auto how = *ended();
  auto text = content_of(log_);
  constexpr std::string_view prefix = "waggle: ";
  if (WIFEXITED(how) && WEXITSTATUS(how) == exit_bad_usage && text.starts_with(prefix))
    return {ec::bad_config, text.substr(prefix.size(), text.find('\n') - prefix.size())};
  return {ec::internal,
          "a process ended " + how_it_ended(how) + "; its log says:\n" + end_of_log()};
}

} // namespace waggle
