#include "runtime/cli/logging.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "runtime/cli/readable.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

/// Messages may quote bytes from the network. A message must not control the terminal on which the
/// log is read, look like two lines, or fill the disk.
constexpr std::size_t message_bytes_max = 8192;

/// A JSON string in ASCII, with its quotes.
std::string json_text(std::string text) {
  return nlohmann::json(std::move(text))
    .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class flag final : public spdlog::custom_flag_formatter {
public:
  using text_of = std::string (*)(std::string_view message);

  explicit flag(text_of what) : what_(what) {}
  void format(const spdlog::details::log_msg& msg, const std::tm&,
              spdlog::memory_buf_t& out) override {
    auto text = what_({msg.payload.data(), msg.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<flag>(what_);
  }

private:
  text_of what_;
};

std::string text_message(std::string_view message) {
  return without_control_characters(message, message_bytes_max);
}

std::string json_message(std::string_view message) {
  return json_text(std::string{message.substr(0, message_bytes_max)});
}

/// The fields of log_about, each followed by a comma.
std::string json_about(std::string_view /*message*/) {
  const auto& about = log_about::now();
  std::string text;
  if (about.epoch)
    text.append("\"epoch\":").append(std::to_string(about.epoch->value())).append(",");
  if (!about.round.is_zero())
    text.append("\"round\":\"").append(to_string(about.round)).append("\",");
  if (about.reason != ec::none)
    text.append("\"reason\":\"").append(to_string(about.reason)).append("\",");
  if (!about.remote.is_zero())
    text.append("\"remote\":\"").append(short_name(about.remote)).append("\",");
  for (const auto& [name, number] : {std::pair{"loss", about.loss},
                                     {"samples_per_second", about.samples_per_second},
                                     {"seconds", about.seconds}})
    if (number && std::isfinite(*number))
      text.append("\"")
        .append(name)
        .append("\":")
        .append(fmt::format("{:.6g}", *number))
        .append(",");
  return text;
}

} // namespace

std::unique_ptr<spdlog::formatter> make_formatter(const std::string& format,
                                                  const std::string& peer, const std::string& run) {
  if (format == "json") {
    std::string name; // a pattern: its own flags begin with %
    for (char c : json_text(run))
      name.append(c == '%' ? 2 : 1, c);
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    formatter->add_flag<flag>('*', json_message)
      .add_flag<flag>('k', json_about)
      .set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","peer":")" + peer + R"(","run":)"
                   + name + R"(,%k"message":%*})");
    return formatter;
  }
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<flag>('*', text_message).set_pattern("%H:%M:%S.%e %^%-7l%$ %*");
  return formatter;
}

std::shared_ptr<spdlog::logger> make_logger(const std::string& level, const std::string& format,
                                            const std::string& peer, const std::string& run) {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("waggle", sink);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::debug);
  logger->set_formatter(make_formatter(format, peer, run));
  return logger;
}

} // namespace waggle
