#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/core/disk.hpp"
#include "runtime/dht/known_peers.hpp"

namespace waggle {

struct address_book_config {
  /// Where known peers are kept. Empty: nowhere, and there is no address book.
  std::filesystem::path file;
  /// From a change until it is on the disk, so that a swarm that comes and goes costs one write.
  milliseconds save_interval{5'000};
};

/// The peers that a former life of this peer has left in `file`: nobody if there is no such file. A
/// file that cannot be used is worth a warning, and nobody, too.
known_peers load_known_peers(disk& files, const std::filesystem::path& file,
                             const node_context& ctx);

/// To itself: write what is new.
struct save_known_peers {};

struct address_book_state {
  static inline const char* name = "address-book";

  known_peers peers;
  bool changed = false;    // since the last write
  bool save_due = false;   // save_known_peers is under way to us
  bool disk_fails = false; // said so
};

using address_book_impl = link_listener_actor::extend<caf::reacts_to<save_known_peers>>;

/// Keeps on the disk whom we were connected with last, for the time after a restart. Blocks while
/// it writes.
address_book_impl::behavior_type
address_book(address_book_impl::stateful_pointer<address_book_state> self, node_context ctx,
             address_book_config config, std::shared_ptr<disk> files, known_peers loaded);

} // namespace waggle

WAGGLE_LOCAL(save_known_peers)
