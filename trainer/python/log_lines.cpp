#include "trainer/python/log_lines.hpp"

#include <pybind11/pybind11.h>

namespace waggle::python {

namespace py = pybind11;

void log_lines::add(log_level level, std::string_view text) {
  constexpr const char* names[]{"debug", "info", "warn", "error"};
  std::lock_guard lock{mutex_};
  if (waiting_.size() < waiting_max)
    waiting_.emplace_back(names[static_cast<std::size_t>(level)], text);
  else
    ++left_out_;
  changed_.notify_one();
}

void log_lines::end() {
  std::lock_guard lock{mutex_};
  ended_ = true;
  changed_.notify_one();
}

std::vector<std::pair<std::string, std::string>> log_lines::take() {
  py::gil_scoped_release free; // also at the end of the program, whose exit handler calls `end`
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return !waiting_.empty() || ended_; });
  if (auto count = std::exchange(left_out_, 0); count > 0)
    waiting_.emplace_back("warn", std::to_string(count)
                                    + " lines of the log are left out: whoever takes them is slow");
  return std::exchange(waiting_, {});
}

std::function<void(log_level, std::string_view)> log_to(std::shared_ptr<log_lines> lines) {
  struct source {
    std::shared_ptr<log_lines> to;
    ~source() { to->end(); }
  };
  auto from = std::make_shared<source>(std::move(lines));
  return [from](log_level level, std::string_view text) { from->to->add(level, text); };
}

} // namespace waggle::python
