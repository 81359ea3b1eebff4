#include "trainer/byte_data.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// The bytes of a file, mapped read-only during the lifetime of this object.
class mapped_file {
public:
  static result<std::unique_ptr<mapped_file>> open(const fs::path& path) {
    auto broken = [&] {
      return failure{ec::bad_config,
                     "cannot read --data " + path.string() + ": " + std::strerror(errno)};
    };
    int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
      return broken();
    struct stat info {};
    if (::fstat(file, &info) != 0) {
      auto why = broken();
      ::close(file);
      return why;
    }
    auto size = static_cast<std::size_t>(info.st_size);
    void* memory = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    auto failed = memory == MAP_FAILED;
    auto why = broken();
    ::close(file);
    if (failed)
      return why;
    return std::unique_ptr<mapped_file>{new mapped_file{memory, size}};
  }
  ~mapped_file() {
    if (memory_ != nullptr)
      ::munmap(memory_, size_);
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  [[nodiscard]] byte_span bytes() const { return {static_cast<const std::byte*>(memory_), size_}; }

private:
  mapped_file(void* memory, std::size_t size) : memory_(memory), size_(size) {}
  void* memory_;
  std::size_t size_;
};

class mapped_text final : public byte_data {
public:
  void add(std::unique_ptr<mapped_file> file) {
    pieces_.push_back(file->bytes());
    files_.push_back(std::move(file));
  }
  [[nodiscard]] const std::vector<byte_span>& pieces() const override { return pieces_; }

private:
  std::vector<std::unique_ptr<mapped_file>> files_;
  std::vector<byte_span> pieces_;
};

class synthetic_text final : public byte_data {
public:
  synthetic_text() : bytes_(1_MiB), pieces_{bytes_} {
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
  [[nodiscard]] const std::vector<byte_span>& pieces() const override { return pieces_; }

private:
  std::vector<std::byte> bytes_;
  std::vector<byte_span> pieces_;
};

} // namespace

result<std::shared_ptr<const byte_data>> open_text(const fs::path& path, std::size_t window) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(path, error)) {
    fs::directory_iterator entries{path, error};
    if (error)
      return failure{ec::bad_config,
                     "cannot read --data " + path.string() + ": " + error.message()};
    for (const auto& entry : entries)
      if (entry.is_regular_file(error) && !entry.is_symlink(error))
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  auto text = std::make_shared<mapped_text>();
  for (const auto& file : files) {
    auto mapped = mapped_file::open(file);
    if (!mapped)
      return mapped.error();
    if ((*mapped)->bytes().size() >= window)
      text->add(std::move(*mapped));
  }
  if (text->pieces().empty())
    return failure{ec::bad_config, "--data " + path.string() + " has no text of at least "
                                     + std::to_string(window)
                                     + " bytes: give a longer one, or a smaller --context"};
  return std::shared_ptr<const byte_data>{text};
}

std::shared_ptr<const byte_data> make_synthetic_text() {
  return std::make_shared<synthetic_text>();
}

window_sampler::window_sampler(std::shared_ptr<const byte_data> data, std::size_t window,
                               random_source random)
  : data_(std::move(data)), window_(window), first_(random), random_(random) {
  std::uint64_t positions = 0;
  for (const auto& piece : data_->pieces()) {
    positions += piece.size() - window_ + 1;
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

const std::byte* window_sampler::next() {
  if (drawn_ > 0 && drawn_ % block == 0)
    begin_block(drawn_ / block);
  ++drawn_;
  auto at = random_.below(ends_.back());
  auto piece =
    static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  auto begin = piece == 0 ? 0 : ends_[piece - 1];
  return data_->pieces()[piece].data() + (at - begin);
}

} // namespace waggle
