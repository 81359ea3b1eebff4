#include "actors/commands/join_line.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/config/options.hpp"

namespace waggle {

namespace {

bool same_for_all(const std::string& name) {
  constexpr std::array own{"device", "threads", "step-interval",      "join-timeout",
                           "resume", "linger",  "checkpoint-interval"};
  const auto* spec = find_option(name);
  if (spec == nullptr || std::find(own.begin(), own.end(), name) != own.end())
    return false;
  return spec->group == "training" || spec->group == "averaging" || name == "elements";
}

} // namespace

std::string shell_word(std::string_view text) {
  auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0
           || std::string_view{"-_./:,@%+="}.find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain))
    return std::string{text};
  std::string word = "'";
  for (char c : text)
    word += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return word + "'";
}

std::string join_line(const run_options& options, const std::string& command_name,
                      const std::vector<endpoint>& addresses, const endpoint& bound) {
  const auto& address = addresses.empty() ? bound : addresses.front();
  std::string line = "waggle " + command_name + " --run-id " + shell_word(options.run_id)
                     + " --initial-peers " + shell_word(to_string(address)) + " --listen 0.0.0.0:0";
  if (address.host == "127.0.0.1")
    line += " --announce 127.0.0.1:0"; // reached by loopback, it cannot reach more either
  for (const auto& [name, value] : options.given)
    if (same_for_all(name))
      line += " --" + name + " " + shell_word(value);
  return line;
}

} // namespace waggle
