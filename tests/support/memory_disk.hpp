#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "runtime/core/disk.hpp"

namespace waggle {

/// Files in memory, with faults on demand: for simulations and tests.
class memory_disk final : public disk {
public:
  result<std::string> read(const std::filesystem::path& file, std::uint64_t bytes_max) override;
  result<std::string> read_begin(const std::filesystem::path& file, std::size_t bytes) override;
  status write(const std::filesystem::path& file, std::initializer_list<byte_span> pieces) override;
  status write_from(const std::filesystem::path& file, const byte_source& content) override;
  status append(const std::filesystem::path& file, byte_span bytes) override;
  result<std::shared_ptr<byte_store>> make_store(const std::filesystem::path& folder) override;
  result<std::vector<std::string>> list(const std::filesystem::path& folder) override;
  status remove(const std::filesystem::path& file) override;

  /// Every write fails with this until it is reset.
  void fail_writes(std::optional<failure> why);
  /// Replaces the content of a file, as a broken medium would.
  void corrupt(const std::filesystem::path& file, std::string content);

private:
  std::mutex mutex_;
  std::map<std::filesystem::path, std::string> files_;
  std::optional<failure> write_fault_;
};

} // namespace waggle
