#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/disk.hpp"
#include "runtime/core/result.hpp"
#include "runtime/watch/event_ring.hpp"

namespace waggle {

struct event_log_config {
  std::filesystem::path folder;
  std::uint64_t bytes = 0; // of all files together; 0: no log
};

/// The lines of the ring in files of the folder: those that come with every epoch (watch::is_usual)
/// in rounds-000001.jsonl and so on, all others in events-000001.jsonl, so that a day of rounds
/// does not push out what went wrong the day before. `files_max` of each, with half of the bytes;
/// the oldest goes when the newest is full. A process that goes on in the folder of an earlier one
/// continues its newest files; a line that the earlier one left half written keeps a line of its
/// own, which readers skip. Not thread-safe.
class event_log {
public:
  static constexpr std::size_t files_max = 4;

  event_log(std::shared_ptr<disk> files, event_log_config config)
    : files_(std::move(files)), config_(std::move(config)) {}

  /// Writes the lines that the ring has after those written before; what was overtaken is lost.
  /// Fails with ec::io_error; then nothing is written any more.
  status write_new(const event_ring& ring);
  [[nodiscard]] bool ended() const { return ended_; }

private:
  /// The files of one name.
  struct series {
    std::string_view stem;
    std::uint64_t number = 0; // of the newest file; 0: there is none
    std::uint64_t size = 0;   // of it
    bool torn = false;        // its last line has no end
    std::string unwritten{};
  };
  status open(series& its);
  status roll(series& its);
  status write(series& its);
  [[nodiscard]] std::filesystem::path file(const series& its) const;
  [[nodiscard]] std::uint64_t file_bytes_max() const;

  const std::shared_ptr<disk> files_;
  const event_log_config config_;
  bool opened_ = false;
  bool ended_ = false;
  std::array<series, 2> series_{series{"events-"}, series{"rounds-"}};
  event_ring::number written_ = 0;
};

} // namespace waggle
