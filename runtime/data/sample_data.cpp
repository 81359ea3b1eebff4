#include "runtime/data/sample_data.hpp"

#include <algorithm>
#include <array>

#include "runtime/agreement/data_files.hpp"
#include "runtime/core/byte_store.hpp"
#include "runtime/core/try.hpp"
#include "runtime/data/guarded_files.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

class synthetic_text final : public sample_data {
public:
  synthetic_text() : sample_data({}, {1_MiB}), bytes_(1_MiB) {
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
  status read(std::size_t /*piece*/, std::uint64_t at, std::span<std::byte> out) const override {
    return borrowed_bytes{bytes_}.read(at, out);
  }

private:
  std::vector<std::byte> bytes_;
};

} // namespace

result<std::shared_ptr<const sample_data>> open_text(const fs::path& path, std::size_t window,
                                                     const std::string& option) {
  WAGGLE_TRY(listed, list_data_files(path, window, option));
  auto text = std::make_shared<items_in_files>(option, listed->files, sample_shape{});
  WAGGLE_TRY(opened, text->files().open_all());
  return std::shared_ptr<const sample_data>{text};
}

std::shared_ptr<const sample_data> make_synthetic_text() {
  return std::make_shared<synthetic_text>();
}

result<std::vector<std::byte>> sample_data::windows(std::size_t window,
                                                    std::span<const window_place> places,
                                                    std::string* /*left_out*/) const {
  auto length = window * shape().item_bytes;
  std::vector<std::byte> out(places.size() * length);
  auto to = std::span{out};
  for (std::size_t i = 0; i < places.size(); ++i)
    if (auto good = read(places[i].piece, places[i].at, to.subspan(i * length, length)); !good)
      return good.error();
  return out;
}

window_sampler::window_sampler(std::shared_ptr<const sample_data> data, std::size_t window,
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

window_place window_sampler::next() {
  if (drawn_ > 0 && drawn_ % block == 0)
    begin_block(drawn_ / block);
  ++drawn_;
  auto at = random_.below(ends_.back());
  auto piece = static_cast<std::size_t>(std::ranges::upper_bound(ends_, at) - ends_.begin());
  auto begin = piece == 0 ? 0 : ends_[piece - 1];
  return {piece, at - begin};
}

status window_sampler::read_next(std::span<std::byte> out) {
  auto where = next();
  return data_->read(where.piece, where.at, out);
}

window_grid::window_grid(const sample_data& data, std::size_t window)
  : step_(window > 1 ? window - 1 : 1) {
  std::uint64_t windows = 0;
  for (auto items : data.sizes())
    ends_.push_back(windows += items < window ? 0 : (items - window) / step_ + 1);
}

window_place window_grid::at(std::uint64_t number) const {
  auto piece = std::ranges::upper_bound(ends_, number) - ends_.begin();
  auto begin = piece == 0 ? 0 : ends_[static_cast<std::size_t>(piece) - 1];
  return {static_cast<std::size_t>(piece), (number - begin) * step_};
}

} // namespace waggle
