#include "runtime/watch/event_log.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "runtime/core/try.hpp"
#include "runtime/watch/event_types.hpp"

namespace waggle {

namespace {

constexpr std::string_view suffix = ".jsonl";

std::optional<std::uint64_t> number_of(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(suffix))
    return std::nullopt;
  name.remove_prefix(stem.size());
  name.remove_suffix(suffix.size());
  std::uint64_t number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size())
    return std::nullopt;
  return number;
}

result<std::vector<std::filesystem::path>>
files_of(disk& files, const std::filesystem::path& folder, std::string_view stem) {
  WAGGLE_TRY(names, files.list(folder));
  std::vector<std::filesystem::path> out;
  for (const auto& name : *names)
    if (number_of(name, stem))
      out.push_back(folder / name);
  return out;
}

} // namespace

std::filesystem::path event_log::file(const series& its) const {
  return config_.folder / fmt::format("{}{:06}{}", its.stem, its.number, suffix);
}

std::uint64_t event_log::file_bytes_max() const {
  return config_.bytes / files_max / series_.size();
}

status event_log::open(series& its) {
  WAGGLE_TRY(all, files_of(*files_, config_.folder, its.stem));
  for (const auto& each : *all)
    its.number = std::max(its.number, *number_of(each.filename().string(), its.stem));
  if (its.number == 0) {
    its.number = 1;
    return done{};
  }
  auto content = files_->read(file(its), file_bytes_max());
  if (!content) // a larger one, of another configuration
    return roll(its);
  its.size = content->size();
  its.torn = !content->empty() && content->back() != '\n';
  return done{};
}

/// The newest file is full.
status event_log::roll(series& its) {
  ++its.number;
  its.size = 0;
  its.torn = false;
  WAGGLE_TRY(all, files_of(*files_, config_.folder, its.stem));
  for (std::size_t i = 0; i + files_max <= all->size(); ++i)
    if (auto removed = files_->remove((*all)[i]); !removed)
      return removed;
  return done{};
}

status event_log::write(series& its) {
  auto text = (std::exchange(its.torn, false) ? "\n" : "") + std::exchange(its.unwritten, {});
  if (its.size > 0 && its.size + text.size() > file_bytes_max())
    if (auto rolled = roll(its); !rolled)
      return rolled;
  its.size += text.size();
  return files_->append(file(its), as_byte_span(text));
}

status event_log::write_new(const event_ring& ring) {
  if (ended_ || config_.bytes == 0)
    return done{};
  auto end = [this](failure why) -> status {
    ended_ = true;
    return why;
  };
  if (!std::exchange(opened_, true))
    for (auto& its : series_)
      if (auto opened = open(its); !opened)
        return end(opened.error());
  while (true) {
    auto at_once = std::min<std::uint64_t>(256_KiB, file_bytes_max() / 2);
    auto news = ring.after(written_, at_once);
    if (news.lines.empty())
      return done{};
    for (std::size_t i = 0; i < news.lines.size(); ++i)
      series_[watch::is_usual(news.kinds[i]) ? 1 : 0].unwritten.append(*news.lines[i]).append("\n");
    for (auto& its : series_)
      if (!its.unwritten.empty())
        if (auto written = write(its); !written)
          return end(written.error());
    written_ = news.last;
  }
}

} // namespace waggle
