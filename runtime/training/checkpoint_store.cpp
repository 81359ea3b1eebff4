#include "runtime/training/checkpoint_store.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace waggle {

namespace {

constexpr std::string_view stem = "checkpoint-";
constexpr std::string_view suffix = ".wgl";
constexpr std::size_t kept = 2;
constexpr std::uint64_t image_bytes_max = 64_GiB;

std::optional<std::uint64_t> number_in(std::string_view digits) {
  std::uint64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size())
    return std::nullopt;
  return number;
}

} // namespace

result<std::vector<checkpoint_store::entry>> checkpoint_store::list() {
  auto names = files_->list(folder_);
  if (!names)
    return names.error();
  std::vector<entry> found;
  for (std::string_view name : *names) {
    if (!name.starts_with(stem) || !name.ends_with(suffix))
      continue;
    auto middle = name.substr(stem.size(), name.size() - stem.size() - suffix.size());
    auto first = middle.find('-');
    auto second = first == std::string_view::npos ? first : middle.find('-', first + 1);
    if (second == std::string_view::npos)
      continue;
    auto serial = number_in(middle.substr(0, first));
    if (serial && number_in(middle.substr(first + 1, second - first - 1)))
      found.push_back({*serial, std::string{middle.substr(second + 1)}, folder_ / name});
  }
  std::sort(found.begin(), found.end(),
            [](const entry& a, const entry& b) { return a.serial > b.serial; });
  return found;
}

result<std::filesystem::path> checkpoint_store::save(const byte_source& image) {
  auto state = check_state(image);
  if (!state)
    return state.error();
  auto before = list();
  if (!before)
    return before.error();
  auto serial = before->empty() ? std::uint64_t{1} : before->front().serial + 1;
  auto branch = short_name(state->past.branch);
  auto file = folder_
              / (std::string{stem} + std::to_string(serial) + "-" + to_string(state->epoch) + "-"
                 + branch + std::string{suffix});
  if (auto written = files_->write_from(file, image); !written)
    return written.error();
  std::map<std::string, std::size_t> seen{{branch, 1}};
  for (const auto& old : *before) { // newest first
    auto count = ++seen[old.branch];
    bool ours = old.branch == branch;
    if (count <= (ours ? kept : 1) && seen.size() <= 1 + histories_max)
      continue;
    if (auto removed = files_->remove(old.file); !removed)
      return removed.error();
  }
  return file;
}

result<checkpoint_store::search> checkpoint_store::load_newest(const digest& schema) {
  auto all = list();
  if (!all)
    return all.error();
  search outcome;
  for (const auto& [serial, branch, file] : *all) {
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
    outcome.newest = found{state->epoch, state->past, file, std::move(*image)};
    break;
  }
  return outcome;
}

result<std::optional<std::filesystem::path>> checkpoint_store::last_of(const digest& branch) {
  auto all = list();
  if (!all)
    return all.error();
  for (const auto& e : *all)
    if (e.branch == short_name(branch))
      return std::optional{e.file};
  return std::optional<std::filesystem::path>{};
}

} // namespace waggle
