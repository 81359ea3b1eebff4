#include "runtime/cli/join_line.hpp"

#include <algorithm>
#include <cctype>

#include "runtime/config/agreed_options.hpp"
#include "runtime/config/values.hpp"

namespace waggle {

std::string_view command_of(const run_agreement* agreement) {
  const auto* strategy = agreement == nullptr ? nullptr : agreement->find("strategy");
  return strategy != nullptr && strategy->value == "average" ? "average" : "train";
}

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

namespace {

using named_texts = std::vector<std::pair<std::string, std::string>>;

/// The options of a joiner. `of_run`: those that tell the run from others; empty ones are left out.
named_texts options_to_join(named_texts of_run, const run_agreement* agreement,
                            const std::vector<endpoint>& initial_peers) {
  auto all = std::move(of_run);
  std::erase_if(all, [](const auto& option) { return option.second.empty(); });
  all.emplace_back("initial-peers", text_of(initial_peers));
  all.emplace_back("listen", "[::]:0");
  const auto& host = initial_peers.front().host;
  if (host == "127.0.0.1" || host == "::1") // others reach it over loopback only
    all.emplace_back("announce", to_string(endpoint{host, 0}));
  if (agreement != nullptr)
    for (auto& option : options_of(*agreement))
      all.push_back(std::move(option));
  return all;
}

/// No option's value contains a control character.
std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c;
  }
  return out + "\"";
}

} // namespace

std::string join_line(const std::string& run_id, const run_agreement* agreement,
                      const std::vector<endpoint>& addresses, const endpoint& bound,
                      const std::string& key_file, const std::string& authority) {
  std::string line = "waggle " + std::string{command_of(agreement)};
  for (const auto& [name, value] :
       options_to_join({{"run-id", run_id}, {"swarm-key", key_file}, {"members", authority}},
                       agreement, {addresses.empty() ? bound : addresses.front()}))
    line += " --" + name + " " + shell_word(value);
  return line;
}

std::string invitation(const std::string& run_id, const run_agreement* agreement,
                       const std::vector<endpoint>& addresses, const endpoint& bound,
                       const std::optional<swarm_key>& key, const std::string& authority,
                       const std::string& list) {
  auto text = "# `waggle " + std::string{command_of(agreement)}
              + " --config FILE` joins this run with this file.\n"
              + (key ? "# Keep it secret: it holds the key of the run.\n" : "");
  for (const auto& [name, value] :
       options_to_join({{"run-id", run_id},
                        {"swarm-key", key ? inline_text(*key) : ""},
                        {"members", authority},
                        {"members-list", list}},
                       agreement, addresses.empty() ? std::vector{bound} : addresses))
    text += name + " = " + toml_text(value) + "\n";
  return text;
}

} // namespace waggle
