#include "runtime/training/checkpoint_store.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "runtime/core/try.hpp"
#include "runtime/training/training_curves.hpp"

namespace waggle {

namespace {

constexpr std::string_view stem = "checkpoint-";
constexpr std::string_view suffix = ".wgl";
constexpr std::uint64_t own_bytes_max = // without vectors
  4_KiB + 2 * position_bytes_max;

constexpr std::string_view own_suffix = ".own";
constexpr std::string_view curves_name = "run.curves";

std::filesystem::path own_file_of(std::filesystem::path image) {
  return image.replace_extension(own_suffix);
}

std::optional<std::uint64_t> number_in(std::string_view digits) {
  std::uint64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size())
    return std::nullopt;
  return number;
}

} // namespace

result<std::vector<checkpoint_store::entry>> checkpoint_store::list() {
  WAGGLE_TRY(names, files_->list(folder_));
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
  std::ranges::sort(found, [](const entry& a, const entry& b) { return a.serial > b.serial; });
  return found;
}

result<std::filesystem::path> checkpoint_store::save(const byte_source& image,
                                                     const own_progress& own) {
  WAGGLE_TRY(state, check_state(image));
  WAGGLE_TRY(before, list());
  auto serial = before->empty() ? std::uint64_t{1} : before->front().serial + 1;
  auto branch = short_name(state->past.branch);
  auto file = folder_
              / (std::string{stem} + std::to_string(serial) + "-" + to_string(state->epoch) + "-"
                 + branch + std::string{suffix});
  if (!own.empty()) {
    std::array<std::byte, state_header_bytes> header{};
    WAGGLE_TRY(read, image.read(0, header));
    auto head = head_of(own, name_of_state(header));
    auto values = [](const auto& v) { return v ? std::as_bytes(std::span{*v}) : byte_span{}; };
    if (auto written =
          files_->write(own_file_of(file), {as_byte_span(head), values(own.partial.sum),
                                            values(own.pending), values(own.residual)});
        !written)
      return written.error();
  }
  if (auto written = files_->write_from(file, image); !written) {
    (void)remove_orphans(); // or a disk without room for the image gets one more at each try
    return written.error();
  }
  std::vector<std::string> others; // the other histories, the one that was written last first
  for (const auto& old : *before)
    if (old.branch != branch && std::ranges::find(others, old.branch) == others.end())
      others.push_back(old.branch);
  if (others.size() > histories_max) {
    constexpr auto newest = static_cast<std::ptrdiff_t>(histories_max - oldest_kept);
    others.erase(others.begin() + newest, others.end() - static_cast<std::ptrdiff_t>(oldest_kept));
  }
  std::map<std::string, std::size_t> seen{{branch, 1}};
  for (const auto& old : *before) { // newest first
    auto count = ++seen[old.branch];
    bool ours = old.branch == branch;
    bool known = ours || std::ranges::find(others, old.branch) != others.end();
    if (known && count <= (ours ? kept_ : 1))
      continue;
    WAGGLE_TRY(removed, files_->remove(old.file));
  }
  WAGGLE_TRY(orphans, remove_orphans());
  return file;
}

status checkpoint_store::save_curves(std::string_view image) {
  return files_->write(folder_ / curves_name, {as_byte_span(image)});
}

result<std::string> checkpoint_store::load_curves() {
  WAGGLE_TRY(names, files_->list(folder_));
  if (std::ranges::find(*names, curves_name) == names->end())
    return std::string{};
  return files_->read(folder_ / curves_name,
                      training_curves::bytes_of(training_curves::points_max));
}

void checkpoint_store::remove_drafts() {
  (void)remove_leftovers(*files_, folder_, {stem, curves_name});
}

result<checkpoint_store::search> checkpoint_store::load_newest(std::optional<digest> schema,
                                                               std::uint64_t image_bytes,
                                                               const state_table* tensors) {
  WAGGLE_TRY(all, list());
  search outcome;
  /// `begin` of a learner's state: of another learner, or too long.
  auto of_another = [&](const std::filesystem::path& file, byte_span begin) {
    auto theirs = read_table_in(borrowed_bytes{begin}, 0);
    if (theirs && tensors != nullptr)
      return failure{ec::schema_mismatch,
                     file.string() + ": " + how_tables_differ(*theirs, *tensors)};
    return failure{ec::schema_mismatch, file.string() + ": it is of another model or optimizer"};
  };
  for (const auto& [serial, branch, file] : *all) {
    auto image = files_->read(file, image_bytes);
    if (!image) {
      auto why = image.error();
      if (schema && why.code == ec::oversize) {
        why.detail += ", which are those of a checkpoint of this model";
        auto begin = files_->read_begin(file, state_header_bytes + 1_MiB); // more than any table
        if (begin && begin->size() > state_header_bytes && tensors != nullptr)
          why = of_another(file, as_byte_span(*begin).subspan(state_header_bytes));
      }
      outcome.skipped.push_back(std::move(why));
      continue;
    }
    auto state = decode_state(as_byte_span(*image));
    if (!state) {
      outcome.skipped.push_back({state.error().code, file.string() + ": " + state.error().detail});
      continue;
    }
    if (schema && state->schema != *schema) {
      outcome.skipped.push_back(of_another(file, state->learner));
      continue;
    }
    outcome.newest = found{state->epoch, state->past, file, std::move(*image)};
    break;
  }
  if (outcome.newest && schema) {
    auto own = load_own(outcome.newest->file, outcome.newest->image);
    if (own)
      outcome.own = std::move(*own);
    else
      outcome.own_trouble = own.error();
  }
  return outcome;
}

result<checkpoint_store::search> checkpoint_store::read_last() {
  auto outcome = load_newest(std::nullopt);
  if (!outcome || outcome->newest)
    return outcome;
  if (!outcome->skipped.empty())
    return outcome->skipped.front();
  return failure{ec::not_found, "there is no checkpoint in " + folder_.string()};
}

/// Fails if there is none, it is damaged or belongs to another state.
result<own_progress> checkpoint_store::load_own(const std::filesystem::path& image,
                                                const std::string& content) {
  WAGGLE_TRY(names, files_->list(folder_));
  auto file = own_file_of(image);
  if (std::find(names->begin(), names->end(), file.filename().string()) == names->end())
    return failure{ec::not_found, file.string() + " is missing"};
  // A sum has at most two words per value of the state, a contribution and a residual one.
  WAGGLE_TRY(bytes, files_->read(file, own_bytes_max + 4 * content.size()));
  auto own =
    decode_own_progress(*bytes, name_of_state(as_byte_span(content).first(state_header_bytes)));
  if (!own)
    return failure{own.error().code, file.string() + ": " + own.error().detail};
  return own;
}

/// Removes own progress whose checkpoint is gone, or was never completed.
status checkpoint_store::remove_orphans() {
  WAGGLE_TRY(names, files_->list(folder_));
  for (std::string_view name : *names) {
    if (!name.starts_with(stem) || !name.ends_with(own_suffix))
      continue;
    auto image = std::string{name.substr(0, name.size() - own_suffix.size())} + std::string{suffix};
    if (std::find(names->begin(), names->end(), image) != names->end())
      continue;
    WAGGLE_TRY(removed, files_->remove(folder_ / name));
  }
  return done{};
}

result<std::optional<std::filesystem::path>> checkpoint_store::last_of(const digest& branch) {
  WAGGLE_TRY(all, list());
  for (const auto& e : *all)
    if (e.branch == short_name(branch))
      return std::optional{e.file};
  return std::optional<std::filesystem::path>{};
}

result<std::filesystem::path> checkpoints_below(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code none;
  auto own = folder / "checkpoints";
  if (fs::is_directory(own, none))
    return own;
  std::vector<fs::path> found;
  for (const auto& each : fs::directory_iterator{folder, none})
    if (fs::is_directory(each.path() / "checkpoints", none))
      found.push_back(each.path());
  if (found.size() > 1)
    return failure{ec::bad_config, "several peers have checkpoints in " + folder.string()
                                     + ": name the folder of one, e.g. " + found.front().string()};
  return found.empty() ? folder : found.front() / "checkpoints";
}

} // namespace waggle
