#include <iostream>

#include <nlohmann/json.hpp>

#include "actors/commands/commands.hpp"
#include "runtime/net/http_client.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  if (value.is_null())
    return "-";
  if (value.is_string())
    return value.get<std::string>();
  return value.dump();
}

/// Null where there is none: whoever answers need not be a peer of ours.
json field(const json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : json(nullptr);
}

int run_status(const run_options& options) {
  auto where = parse_endpoint(options.arguments.front());
  if (!where)
    return bad_usage(where.error().detail);
  auto status = net::http_get(*where, "/api/v1/status", 5s);
  auto peers = status ? net::http_get(*where, "/api/v1/peers", 5s) : status;
  if (!peers) {
    std::cerr << "waggle: no peer answers at " << to_string(*where) << ": "
              << to_string(peers.error()) << "\n";
    return exit_failed;
  }
  auto document = json::parse(status->body, nullptr, false);
  auto others = json::parse(peers->body, nullptr, false);
  if (status->status != 200 || peers->status != 200 || !document.is_object() || !others.is_object()
      || !others.contains("peers") || !others["peers"].is_array()) {
    std::cerr << "waggle: " << to_string(*where) << " does not answer like a waggle peer\n";
    return exit_failed;
  }
  if (options.json) {
    document["peer_list"] = others["peers"];
    std::cout << document.dump(2) << "\n";
    return exit_clean;
  }
  for (const auto& [key, value] : document.items())
    std::cout << key << std::string(key.size() < 22 ? 22 - key.size() : 1, ' ') << text_of(value)
              << "\n";
  std::cout << "\npeer      epoch   samples  samples/s  connected  address\n";
  for (const auto& peer : others["peers"]) {
    char line[256];
    auto addresses = field(peer, "addresses");
    auto address = addresses.is_array() && !addresses.empty() ? addresses[0] : json("-");
    std::snprintf(
      line, sizeof line, "%-8.8s  %-6s  %-7s  %-9.9s  %-9s  %s\n",
      text_of(field(peer, "id")).c_str(), text_of(field(peer, "epoch")).c_str(),
      text_of(field(peer, "samples")).c_str(), text_of(field(peer, "samples_per_second")).c_str(),
      field(peer, "self") == true ? "(itself)" : (field(peer, "connected") == true ? "yes" : "no"),
      text_of(address).c_str());
    std::cout << line;
  }
  return exit_clean;
}

} // namespace

command status_command() {
  return {"status",
          "Asks a peer how it is doing: waggle status HOST:PORT.",
          "  waggle status 127.0.0.1:7700\n"
          "With --json: one JSON object on standard output.\n",
          {"output"},
          {{"ADDR", "Where the peer listens: HOST:PORT."}},
          run_status,
          true};
}

} // namespace waggle
