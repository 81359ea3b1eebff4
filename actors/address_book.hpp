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
  /// The file of known peers. Empty: none, and no address_book is started.
  std::filesystem::path file;
  /// Delay from a change to its write, so that many changes within that time cost one write.
  milliseconds save_interval{5'000};
};

/// The peers that an earlier run of this process stored in `file`. None if there is no such file,
/// or, with a logged warning, if the file cannot be used.
known_peers load_known_peers(disk& files, const std::filesystem::path& file,
                             const node_context& ctx);

/// To itself: write the changes.
struct save_known_peers {};

struct address_book_state {
  static inline const char* name = "address-book";

  known_peers peers;
  bool changed = false;    // since the last write
  bool save_due = false;   // a save_known_peers is scheduled
  bool disk_fails = false; // the last write failed, and a warning was logged
};

using address_book_impl = link_listener_actor::extend<caf::reacts_to<save_known_peers>>;

/// Stores the peers that this peer was connected with most recently on disk, to dial them after a
/// restart. Blocks while it writes.
address_book_impl::behavior_type
address_book(address_book_impl::stateful_pointer<address_book_state> self, node_context ctx,
             address_book_config config, std::shared_ptr<disk> files, known_peers loaded);

} // namespace waggle

WAGGLE_LOCAL(save_known_peers)
