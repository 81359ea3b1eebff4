#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/cli/readable.hpp"
#include "runtime/config/options.hpp"
#include "runtime/net/http_client.hpp"

namespace waggle {

namespace {

constexpr std::string_view https = "https://";

} // namespace

bool asks_encrypted(const run_options& options) {
  return options.arguments.front().starts_with(https) || !asked_fingerprint(options).empty();
}

std::string asked_fingerprint(const run_options& options) {
  return find_option("fingerprint")->get(options);
}

result<endpoint> asked_peer(const run_options& options) {
  if (std::string_view address = options.arguments.front(); !address.empty())
    return parse_endpoint(address.starts_with(https) ? address.substr(https.size()) : address);
  return address_of_running_peer(options.data_dir);
}

int report_no_peer(const failure& why) {
  (void)bad_usage(why.detail);
  return why.code == ec::unreachable ? exit_failed : exit_bad_usage;
}

namespace {

int run_health(const run_options& options) {
  auto where = asked_peer(options);
  if (!where)
    return report_no_peer(where.error());
  auto get = [&](const char* page) {
    return net::http_get(*where, page, 3s, {}, asks_encrypted(options), asked_fingerprint(options));
  };
  auto health = get("/healthz");
  auto ready = health ? get("/readyz") : health;
  if (!health && health.error().code == ec::bad_signature)
    return bad_usage(health.error().detail);
  if (!ready || health->status != 200) {
    std::cerr << "waggle: no healthy peer answers at " << to_string(*where)
              << (ready ? std::string{} : ": " + to_string(ready.error())) << "\n";
    return exit_failed;
  }
  std::cout << "alive, "
            << without_control_characters(ready->body.substr(0, ready->body.find('\n')), 400)
            << "\n";
  return exit_clean;
}

} // namespace

command health_command() {
  return {.name = "health",
          .summary = "Asks a peer whether it is alive: exit code 0, or 1.",
          .details =
            "  waggle health                       the peer of this folder (in .waggle)\n"
            "  waggle health --data-dir /data/a    the peer of that folder\n"
            "  waggle health 127.0.0.1:7700\n"
            "For the health checks of containers. A living peer need not be ready to average; the "
            "output says so.\n",
          .arguments = {{"HOST:PORT", "Where the peer listens; without it, the peer of --data-dir.",
                         false}},
          .run = run_health,
          .single_options = {"data-dir", "fingerprint"}};
}

} // namespace waggle
