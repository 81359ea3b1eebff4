// Reads options from the environment, and finds variables that were probably meant as options.

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "runtime/config/options.hpp"
#include "runtime/core/nearest.hpp"

namespace waggle {

namespace {

/// Lightning's variable for --initial-peers, in two spellings.
constexpr std::array names_of_initial_peers{"INITIAL_PEERS", "PL_INITIAL_PEERS"};

std::string environment_name(std::string_view option) {
  std::string name = "WAGGLE_";
  for (char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// Kubernetes describes each service of a namespace in variables of all containers. For services
/// named waggle or waggle-metrics: WAGGLE_SERVICE_HOST, WAGGLE_SERVICE_PORT_HTTP, WAGGLE_PORT,
/// WAGGLE_METRICS_PORT_9090_TCP_ADDR, ….
bool from_kubernetes(std::string_view name) {
  if (name.ends_with("_PORT") || name.find("_SERVICE_HOST") != std::string_view::npos
      || name.find("_SERVICE_PORT") != std::string_view::npos)
    return true;
  for (auto at = name.find("_PORT_"); at != std::string_view::npos;
       at = name.find("_PORT_", at + 1)) {
    auto rest = name.substr(at + 6);
    auto digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(digits);
    if (digits > 0
        && (rest.starts_with("_TCP") || rest.starts_with("_UDP") || rest.starts_with("_SCTP")))
      return true;
  }
  return false;
}

/// A name from outside, truncated, and without characters that could control a terminal.
std::string shown(std::string_view name) {
  constexpr std::size_t length_max = 64;
  std::string out{name.substr(0, length_max)};
  std::replace_if(
    out.begin(), out.end(), [](char c) { return c < '!' || c > '~'; }, '?');
  return name.size() > length_max ? out + "..." : out;
}

} // namespace

std::string without_wrapping(std::string_view value) {
  auto trim = [&value] {
    constexpr const char* blank = " \t\r\n";
    auto first = value.find_first_not_of(blank);
    value = first == std::string_view::npos
              ? std::string_view{}
              : value.substr(first, value.find_last_not_of(blank) - first + 1);
  };
  trim();
  for (char quote : {'"', '\''})
    if (value.size() >= 2 && value.front() == quote && value.back() == quote) {
      value = value.substr(1, value.size() - 2);
      trim();
      break;
    }
  return std::string{value};
}

settings from_environment(const std::vector<std::string>& taken,
                          const std::function<const char*(const char*)>& look_up) {
  settings found;
  for (const auto& name : taken) {
    auto variable = environment_name(name);
    const char* value = look_up(variable.c_str());
    if (name == "initial-peers")
      for (const char* other : names_of_initial_peers)
        if (value == nullptr) {
          variable = other;
          value = look_up(other);
        }
    if (value == nullptr)
      continue;
    if (auto meant = without_wrapping(value); !meant.empty())
      found[name] = {meant, variable};
  }
  return found;
}

std::vector<const char*> without_options(const char* const* variables) {
  std::vector<const char*> others;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    std::string_view variable{*variables};
    auto name = variable.substr(0, variable.find('='));
    if (!name.starts_with("WAGGLE_")
        && std::ranges::find(names_of_initial_peers, name) == names_of_initial_peers.end())
      others.push_back(*variables);
  }
  return others;
}

std::vector<std::string> unknown_variables(const char* const* variables) {
  std::vector<std::string> names{"WAGGLE_CONFIG"};
  for (const auto& spec : option_table())
    names.push_back(environment_name(spec.name));
  std::vector<std::string> sentences;
  std::string of_kubernetes;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    std::string_view variable{*variables};
    auto name = variable.substr(0, variable.find('='));
    if (!name.starts_with("WAGGLE_") || std::ranges::find(names, name) != names.end())
      continue;
    if (from_kubernetes(name))
      of_kubernetes += (of_kubernetes.empty() ? "" : ", ") + shown(name);
    else
      sentences.push_back("there is no option for the environment's " + shown(name)
                          + ", which is ignored; the nearest is " + nearest(shown(name), names));
  }
  if (!of_kubernetes.empty())
    sentences.push_back("no options, and ignored in the environment: " + of_kubernetes
                        + " (Kubernetes sets them for a service called waggle)");
  return sentences;
}

} // namespace waggle
