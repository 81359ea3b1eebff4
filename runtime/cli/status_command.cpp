#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/status_text.hpp"
#include "runtime/net/http_client.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

int run_status(const run_options& options) {
  auto where = asked_peer(options);
  if (!where)
    return report_no_peer(where.error());
  auto status = net::http_get(*where, "/api/v1/status", 5s);
  auto peers = status ? net::http_get(*where, "/api/v1/peers", 5s) : status;
  if (!peers) {
    std::cerr << "waggle: no peer answers at " << to_string(*where) << ": "
              << to_string(peers.error()) << "\n";
    return exit_failed;
  }
  auto document = parse_document(status->body).value_or(nullptr);
  auto seen = parse_document(peers->body).value_or(nullptr);
  auto others = field(seen, "peers");
  if (status->status != 200 || peers->status != 200 || !document.is_object()
      || !others.is_array()) {
    std::cerr << "waggle: " << to_string(*where) << " does not answer like a waggle peer\n";
    return exit_failed;
  }
  if (options.json) {
    document["peer_list"] = others;
    document["left"] = field(seen, "left");
    std::cout << document.dump(2, ' ', true) << "\n";
    return exit_clean;
  }
  auto now = std::chrono::system_clock::now().time_since_epoch();
  std::cout << status_text(document, others)
            << departures_text(seen, std::chrono::duration_cast<milliseconds>(now).count());
  return exit_clean;
}

} // namespace

command status_command() {
  return {.name = "status",
          .summary = "Shows the status of a peer: waggle status [HOST:PORT].",
          .details = "  waggle status                    the peer of this folder (in .waggle)\n"
                     "  waggle status 127.0.0.1:7700\n"
                     "With --json: one JSON object on standard output.\n",
          .groups = {"output"},
          .arguments = {{"HOST:PORT", "Where the peer listens; without it, the peer of --data-dir.",
                         false}},
          .run = run_status,
          .json_to_output = true,
          .single_options = {"data-dir"}};
}

} // namespace waggle
