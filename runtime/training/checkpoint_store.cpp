#include "runtime/training/checkpoint_store.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/learner.hpp"

namespace waggle {

namespace {

constexpr std::string_view stem = "checkpoint-";
constexpr std::string_view suffix = ".wgl";
constexpr std::size_t kept = 2;
constexpr std::uint64_t image_bytes_max = 64_GiB;

// Layout of the own state: magic (8) | schema (32) | SHA-256 of the content (32) | the content.
constexpr std::string_view own_file = "own-state";
constexpr std::string_view own_magic = "WGGLOW01";
constexpr std::uint64_t own_bytes_max = 8 + 32 + 32 + learner::own_bytes_max;

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

result<std::filesystem::path> checkpoint_store::save(const byte_source& image,
                                                     const std::string& own) {
  auto state = check_state(image);
  if (!state)
    return state.error();
  if (!own.empty()) {
    WAGGLE_CHECK(own.size() <= learner::own_bytes_max, std::to_string(own.size()));
    byte_writer out;
    out.put_raw(own_magic).put(state->schema).put(sha256(own)).put_raw(own);
    if (auto written = files_->write(folder_ / own_file, {as_byte_span(out.text())}); !written)
      return written.error();
  }
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
  if (outcome.newest) {
    auto own = load_own(schema);
    if (own)
      outcome.own = std::move(*own);
    else
      outcome.skipped.push_back(own.error());
  }
  return outcome;
}

/// Empty if there is none for this schema. Fails if it is damaged.
result<std::string> checkpoint_store::load_own(const digest& schema) {
  auto names = files_->list(folder_);
  if (!names)
    return names.error();
  if (std::find(names->begin(), names->end(), own_file) == names->end())
    return std::string{};
  auto file = folder_ / own_file;
  auto bytes = files_->read(file, own_bytes_max);
  if (!bytes)
    return bytes.error();
  byte_reader in{std::string_view{*bytes}};
  bool known = in.get_raw(own_magic.size()) == own_magic;
  auto of = in.get<digest>();
  auto hash = in.get<digest>();
  std::string own{in.get_raw(in.left())};
  if (!known || !in.ok() || sha256(own) != hash)
    return failure{ec::malformed, file.string() + ": it is damaged"};
  return of == schema ? own : std::string{};
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
