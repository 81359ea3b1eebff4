#include "runtime/cli/join_line.hpp"

#include <algorithm>
#include <cctype>

#include "runtime/config/agreed_options.hpp"

namespace waggle {

namespace {

/// The command that starts a peer of the run.
std::string command_of(const run_agreement* agreement) {
  const auto* strategy = agreement == nullptr ? nullptr : agreement->find("strategy");
  return strategy != nullptr && strategy->value == "average" ? "average" : "train";
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

std::string join_line(const std::string& run_id, const run_agreement* agreement,
                      const std::vector<endpoint>& addresses, const endpoint& bound) {
  const auto& address = addresses.empty() ? bound : addresses.front();
  std::string line = "waggle " + command_of(agreement) + " --run-id " + shell_word(run_id)
                     + " --initial-peers " + shell_word(to_string(address)) + " --listen "
                     + shell_word("[::]:0");
  if (address.host == "127.0.0.1" || address.host == "::1") // others reach it over loopback only
    line += " --announce " + shell_word(to_string(endpoint{address.host, 0}));
  if (agreement != nullptr)
    for (const auto& [name, value] : options_of(*agreement))
      line += " --" + name + " " + shell_word(value);
  return line;
}

} // namespace waggle
