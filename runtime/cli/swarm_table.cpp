#include "runtime/cli/swarm_table.hpp"

#include <algorithm>
#include <cmath>

#include <spdlog/fmt/fmt.h>

#include "runtime/cli/readable.hpp"
#include "runtime/cli/text_table.hpp"

namespace waggle {

namespace {

constexpr std::size_t short_id_length = 8;
constexpr std::size_t state_length = 12; // unknown phases are cut to this length

/// The first columns of both tables: the most important ones, which are omitted last.
std::vector<text_table::column> common_columns() {
  return {{"peer", short_id_length}, {"state", 9},         {"epoch", 5, true},
          {"loss", 6, true},         {"samples", 7, true}, {"MB moved", 8, true}};
}

std::vector<std::string> common_cells(const swarm_summary::peer& peer, std::string state) {
  const auto& s = peer.last;
  return {
    short_name(peer),        std::move(state),
    readable_count(s.epoch), readable_loss(s.loss),
    readable_count(s.used),  fmt::format("{:.1f}", static_cast<double>(s.bytes_moved()) / 1e6)};
}

} // namespace

std::string short_name(const swarm_summary::peer& peer) {
  return peer.last.id.empty() ? "?" : printable(peer.last.id.substr(0, short_id_length), 32);
}

std::string state_of(const swarm_summary::peer& peer) {
  if (peer.killed)
    return "killed";
  if (peer.silent)
    return "no answer";
  return peer.last.phase.empty() ? "-" : printable(peer.last.phase, state_length);
}

std::vector<std::string> live_table(double seconds, const std::vector<swarm_summary::peer>& peers,
                                    terminal_size room) {
  auto columns = common_columns();
  columns.insert(columns.begin(), {fmt::format("{:.0f}s", seconds), 6, true});
  columns.push_back({"toward epoch", 0, true});
  columns.push_back({"last round", 20, false, 10});
  text_table table{columns};
  // Two lines are kept free: for the cursor, and for the note about omitted peers.
  auto shown = std::min(peers.size(), room.lines > 3 ? room.lines - 3 : 1);
  if (peers.size() == shown + 1 && room.lines > 2)
    shown = peers.size(); // the note would take the line of the last peer
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& s = peers[i].last;
    auto cells = common_cells(peers[i], state_of(peers[i]));
    cells.insert(cells.begin(), "");
    cells.push_back(readable_count(s.samples_toward_epoch));
    cells.push_back(printable(s.last_outcome, 40));
    table.add_row(std::move(cells));
  }
  // A terminal may wrap a line that fills it.
  auto width = room.columns > 1 ? room.columns - 1 : 1;
  auto lines = table.lines(width);
  if (shown < peers.size()) {
    auto note = "        and " + readable_count(peers.size() - shown) + " more";
    lines.push_back(note.substr(0, width));
  }
  return lines;
}

std::vector<std::string> summary_table(const std::vector<swarm_summary::peer>& peers,
                                       std::size_t width) {
  auto columns = common_columns();
  columns.insert(columns.end(), {{"first loss", 0, true},
                                 {"rounds complete", 0, true},
                                 {"shrunk", 0, true},
                                 {"failed", 0, true}});
  bool evaluated = std::ranges::any_of(
    peers, [](const swarm_summary::peer& p) { return std::isfinite(p.last.eval_loss); });
  if (evaluated)
    columns.insert(columns.begin() + 4, {{"eval loss", 0, true}, {"accuracy", 0, true}});
  text_table table{columns};
  for (const auto& p : peers) {
    const auto& s = p.last;
    auto cells = common_cells(p, !p.killed && p.joined_late ? "joined later" : state_of(p));
    if (evaluated)
      cells.insert(cells.begin() + 4, {readable_loss(s.eval_loss), readable_loss(s.eval_accuracy)});
    cells.insert(cells.end(), {readable_loss(s.first_loss), readable_count(s.complete),
                               readable_count(s.shrunk), readable_count(s.failed)});
    table.add_row(std::move(cells));
  }
  return table.lines(width);
}

} // namespace waggle
