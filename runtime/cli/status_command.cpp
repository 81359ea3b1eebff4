#include <algorithm>
#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/curve_text.hpp"
#include "runtime/cli/status_text.hpp"
#include "runtime/core/named.hpp"
#include "runtime/net/http_client.hpp"
#include "runtime/status/symptoms.hpp"
#include "runtime/training/training_curves.hpp"
#include "runtime/watch/events.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

int no_answer(const endpoint& where, const failure& why) {
  if (why.code == ec::bad_signature)
    return bad_usage(why.detail);
  std::cerr << "waggle: no peer answers at " << to_string(where) << ": " << to_string(why) << "\n";
  return exit_failed;
}

int no_peer(const endpoint& where) {
  std::cerr << "waggle: " << to_string(where) << " does not answer like a waggle peer\n";
  return exit_failed;
}

int refused(const endpoint& where, const net::http_response& answer) {
  auto why = text_in(parse_document(answer.body).value_or(nullptr), "error");
  return bad_usage(to_string(where) + " refuses: "
                   + (why.empty() ? "it does not show that it knows the swarm key" : why));
}

result<net::http_response> page_of(const endpoint& where, const char* page,
                                   const run_options& options) {
  return net::http_get(where, page, 5s, options.key, asks_encrypted(options),
                       asked_fingerprint(options));
}

int show_curve(const endpoint& where, const std::string& name, const run_options& options) {
  auto answer = page_of(where, "/api/v1/curves", options);
  if (!answer)
    return no_answer(where, answer.error());
  auto document = parse_document(answer->body).value_or(nullptr);
  if (answer->status == 403)
    return refused(where, *answer);
  if (answer->status != 200 || !field(document, name.c_str()).is_array())
    return no_peer(where);
  if (options.json) {
    nlohmann::ordered_json out{{"curve", name}};
    for (const auto* each : {"epoch", "samples", "t", name.c_str()})
      out[each] = field(document, each);
    out["best"] = field(field(document, "best"), name.c_str());
    std::cout << out.dump(-1, ' ', true) << "\n";
    return exit_clean;
  }
  auto text = curve_text(document, name);
  if (text.empty())
    text = "this peer has no " + name
           + " to show: " + std::string{find_named(curve_table(), name)->missing} + "\n";
  std::cout << text;
  return exit_clean;
}

int run_status(const run_options& options) {
  auto where = asked_peer(options);
  if (!where)
    return report_no_peer(where.error());
  if (!options.curve.empty())
    return show_curve(*where, options.curve, options);
  int code = exit_clean;
  auto said = documents_of(*where, options, code);
  if (!said)
    return code;
  auto& document = said->status;
  const auto& seen = said->peers;
  auto others = field(seen, "peers");
  bool bad = std::ranges::any_of(symptoms_in(document), [](const finding_of_peer& each) {
    return each.row->how == severity::bad;
  });
  code = bad ? exit_failed : exit_clean;
  if (options.json) {
    document["peer_list"] = others;
    document["left"] = field(seen, "left");
    std::cout << document.dump(2, ' ', true) << "\n";
    return code;
  }
  auto now = watch::unix_ms(system_wall_clock{}.now());
  std::cout << status_text(document, others) << departures_text(seen, now);
  return code;
}

} // namespace

std::optional<peer_documents> documents_of(const endpoint& where, const run_options& options,
                                           int& code) {
  auto status = page_of(where, "/api/v1/status", options);
  auto peers = status ? page_of(where, "/api/v1/peers", options) : status;
  if (!peers)
    code = no_answer(where, peers.error());
  else if (status->status == 403)
    code = refused(where, *status);
  else if (peer_documents said{parse_document(status->body).value_or(nullptr),
                               parse_document(peers->body).value_or(nullptr)};
           status->status != 200 || peers->status != 200 || !said.status.is_object()
           || !field(said.peers, "peers").is_array())
    code = no_peer(where);
  else
    return said;
  return std::nullopt;
}

command status_command() {
  return {
    .name = "status",
    .summary = "Shows the status of a peer: waggle status [HOST:PORT].",
    .details =
      "  waggle status                    the peer of this folder (in .waggle)\n"
      "  waggle status 127.0.0.1:7700\n"
      "  waggle status 127.0.0.1:7700 --curve loss    from the run's first epoch on\n"
      "  waggle status https://HOST:7700              encrypted; --swarm-key implies it\n"
      "  waggle status HOST:7700 --fingerprint AB:CD:…  encrypted, and with this certificate\n"
      "With --json: one JSON object on standard output. Exit code 1: no peer answers, or it "
      "sees that\nthe run is split, or that peers hold different parameters.\n",
    .groups = {"status", "output"},
    .arguments = {{"HOST:PORT", "Where the peer listens; without it, the peer of --data-dir.",
                   false}},
    .run = run_status,
    .json_to_output = true,
    .single_options = {"data-dir", "swarm-key"}};
}

} // namespace waggle
