#include "runtime/training/checkpoint_store.hpp"

#include <algorithm>
#include <charconv>

namespace waggle {

namespace {

constexpr std::string_view stem = "checkpoint-";
constexpr std::string_view suffix = ".wgl";
constexpr std::size_t kept = 2;
constexpr std::uint64_t image_bytes_max = 64_GiB;

std::optional<epoch_id> epoch_of(std::string_view name) {
  if (!name.starts_with(stem) || !name.ends_with(suffix))
    return std::nullopt;
  auto digits = name.substr(stem.size(), name.size() - stem.size() - suffix.size());
  std::uint64_t epoch = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), epoch);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty())
    return std::nullopt;
  return epoch_id{epoch};
}

} // namespace

result<std::vector<std::pair<epoch_id, std::filesystem::path>>> checkpoint_store::list() {
  auto names = files_->list(folder_);
  if (!names)
    return names.error();
  std::vector<std::pair<epoch_id, std::filesystem::path>> found;
  for (const auto& name : *names)
    if (auto epoch = epoch_of(name))
      found.emplace_back(*epoch, folder_ / name);
  std::sort(found.rbegin(), found.rend()); // newest first
  return found;
}

status checkpoint_store::save(const training_state& state) {
  auto header = encode_state_header(state);
  auto file = folder_ / (std::string{stem} + to_string(state.epoch) + std::string{suffix});
  if (auto written = files_->write(file, {as_byte_span(header), state.learner}); !written)
    return written;
  auto all = list();
  if (!all)
    return all.error();
  auto ours = std::find_if(all->begin(), all->end(),
                           [&](const auto& entry) { return entry.first <= state.epoch; });
  for (std::size_t i = kept + static_cast<std::size_t>(ours - all->begin()); i < all->size(); ++i)
    if (auto removed = files_->remove((*all)[i].second); !removed)
      return removed;
  return done{};
}

result<checkpoint_store::search> checkpoint_store::load_newest(const digest& schema) {
  auto all = list();
  if (!all)
    return all.error();
  search outcome;
  for (const auto& [epoch, file] : *all) {
    auto image = files_->read(file, image_bytes_max);
    if (!image) {
      outcome.skipped.push_back(image.error());
      continue;
    }
    auto state = decode_state(as_byte_span(*image));
    if (!state) {
      outcome.skipped.push_back({state.error().code, file.string() + ": " + state.error().detail});
      continue;
    }
    if (state->schema != schema) {
      outcome.skipped.push_back(
        {ec::schema_mismatch, file.string() + ": it is of another model or optimizer"});
      continue;
    }
    outcome.newest = found{state->epoch, std::move(*image)};
    break;
  }
  return outcome;
}

} // namespace waggle
