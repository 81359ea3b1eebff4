#include "trainer/byte_data.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/agreement/data_files.hpp"
#include "runtime/core/byte_store.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// How many files are open at a time: a process may have a thousand, sockets included.
constexpr std::size_t open_files_max = 256;

failure unreadable(const fs::path& file, const std::string& why) {
  return {ec::io_error, "--data " + file.string() + " " + why};
}

class text_files final : public byte_data {
public:
  explicit text_files(const std::vector<data_files::file>& files) {
    for (const auto& file : files) {
      files_.push_back({file.path, 0, 0, -1});
      sizes_.push_back(file.bytes);
    }
  }
  ~text_files() override {
    for (auto which : open_)
      ::close(files_[which].number);
  }
  text_files(const text_files&) = delete;
  text_files& operator=(const text_files&) = delete;

  [[nodiscard]] const std::vector<std::uint64_t>& sizes() const override { return sizes_; }

  status read(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const override {
    auto good = read_now(piece, at, out);
    if (good)
      return good;
    return failure{good.error().code, good.error().detail
                                        + ": restore it, and start this peer again, which resumes "
                                          "from its checkpoint"};
  }

  /// Opens the file, and closes the one that was opened first if too many are. A file that was
  /// closed meanwhile must still be the one that it was.
  status open(std::size_t which) const {
    auto& file = files_[which];
    if (file.number >= 0)
      return done{};
    auto number = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (number < 0)
      return unreadable(file.path, std::string{"cannot be opened: "} + std::strerror(errno));
    struct stat info {};
    bool known = ::fstat(number, &info) == 0;
    if (!known || (file.inode != 0 && (file.inode != info.st_ino || file.device != info.st_dev))) {
      ::close(number);
      return unreadable(file.path, "was replaced");
    }
    if (open_.size() >= open_files_max) {
      auto& first = files_[open_.front()];
      ::close(std::exchange(first.number, -1));
      open_.pop_front();
    }
    file.device = info.st_dev;
    file.inode = info.st_ino;
    file.number = number;
    open_.push_back(which);
    return done{};
  }

private:
  status read_now(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const {
    if (auto ready = open(piece); !ready)
      return ready;
    const auto& file = files_[piece];
    while (!out.empty()) {
      auto n = ::pread(file.number, out.data(), out.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return unreadable(file.path, std::string{"cannot be read: "} + std::strerror(errno));
      if (n == 0)
        return unreadable(file.path, "has become shorter than the " + std::to_string(sizes_[piece])
                                       + " bytes that it had when this peer started");
      out = out.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
    return done{};
  }

  struct opened {
    fs::path path;
    dev_t device;
    ino_t inode; // 0: it was never opened
    int number;  // of the open file; -1: none
  };
  mutable std::vector<opened> files_;
  mutable std::deque<std::size_t> open_; // the one that was opened first is in front
  std::vector<std::uint64_t> sizes_;
};

class synthetic_text final : public byte_data {
public:
  synthetic_text() : bytes_(1_MiB), sizes_{bytes_.size()} {
    constexpr std::uint64_t letters = 64;
    random_source random{20'260'101};
    std::array<std::array<std::uint8_t, 4>, letters> followers{};
    for (auto& row : followers)
      for (auto& letter : row)
        letter = static_cast<std::uint8_t>(random.below(letters));
    std::uint8_t now = 0;
    for (auto& b : bytes_) {
      now = followers[now][random.below(4)];
      b = static_cast<std::byte>(32 + now);
    }
  }
  [[nodiscard]] const std::vector<std::uint64_t>& sizes() const override { return sizes_; }
  status read(std::size_t /*piece*/, std::uint64_t at, std::span<std::byte> out) const override {
    return borrowed_bytes{bytes_}.read(at, out);
  }

private:
  std::vector<std::byte> bytes_;
  std::vector<std::uint64_t> sizes_;
};

} // namespace

result<std::shared_ptr<const byte_data>> open_text(const fs::path& path, std::size_t window) {
  auto listed = list_data_files(path, window);
  if (!listed)
    return listed.error();
  auto text = std::make_shared<text_files>(listed->files);
  for (std::size_t i = 0; i < listed->files.size(); ++i) // all, to find out now which cannot be
    if (auto opened = text->open(i); !opened)
      return failure{ec::bad_config, opened.error().detail};
  return std::shared_ptr<const byte_data>{text};
}

std::shared_ptr<const byte_data> make_synthetic_text() {
  return std::make_shared<synthetic_text>();
}

window_sampler::window_sampler(std::shared_ptr<const byte_data> data, std::size_t window,
                               random_source random)
  : data_(std::move(data)), window_(window), first_(random), random_(random) {
  std::uint64_t positions = 0;
  for (auto size : data_->sizes()) {
    positions += size - window_ + 1;
    ends_.push_back(positions);
  }
  auto shape = "fingerprint/" + std::to_string(window_);
  for (auto end : ends_)
    shape += "/" + std::to_string(end);
  fingerprint_ = first_.fork(shape).next();
}

void window_sampler::begin_block(std::uint64_t number) {
  random_ = number == 0 ? first_ : first_.fork("windows/" + std::to_string(number));
}

void window_sampler::continue_after(std::uint64_t drawn) {
  drawn_ = drawn - drawn % block;
  begin_block(drawn_ / block);
  while (drawn_ < drawn)
    (void)next();
}

window_sampler::place window_sampler::next() {
  if (drawn_ > 0 && drawn_ % block == 0)
    begin_block(drawn_ / block);
  ++drawn_;
  auto at = random_.below(ends_.back());
  auto piece =
    static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  auto begin = piece == 0 ? 0 : ends_[piece - 1];
  return {piece, at - begin};
}

status window_sampler::read_next(std::span<std::byte> out) {
  auto where = next();
  return data_->read(where.piece, where.at, out);
}

} // namespace waggle
