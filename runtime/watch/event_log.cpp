#include "runtime/watch/event_log.hpp"

#include <charconv>
#include <cstdio>
#include <optional>

namespace waggle {

namespace {

constexpr std::string_view stem = "events-";
constexpr std::string_view suffix = ".jsonl";

std::optional<std::uint64_t> number_of(std::string_view name) {
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

} // namespace

std::filesystem::path event_log::file() const {
  char name[32];
  std::snprintf(name, sizeof name, "events-%06llu.jsonl", static_cast<unsigned long long>(number_));
  return config_.folder / name;
}

status event_log::open() {
  auto names = files_->list(config_.folder);
  if (!names)
    return names.error();
  for (const auto& name : *names)
    if (auto number = number_of(name))
      number_ = std::max(number_, *number);
  if (number_ == 0) {
    number_ = 1;
    return done{};
  }
  auto content = files_->read(file(), config_.bytes / files_max);
  if (!content) // a larger one, of another configuration
    return roll();
  size_ = content->size();
  if (!content->empty() && content->back() != '\n')
    torn_ = true;
  return done{};
}

/// The newest file is full.
status event_log::roll() {
  ++number_;
  size_ = 0;
  torn_ = false;
  auto all = event_log_files(*files_, config_.folder);
  if (!all)
    return all.error();
  for (std::size_t i = 0; i + files_max <= all->size(); ++i)
    if (auto removed = files_->remove((*all)[i]); !removed)
      return removed;
  return done{};
}

status event_log::write_new(const event_ring& ring) {
  if (ended_ || config_.bytes == 0)
    return done{};
  auto end = [this](failure why) -> status {
    ended_ = true;
    return why;
  };
  if (!std::exchange(opened_, true))
    if (auto opened = open(); !opened)
      return end(opened.error());
  while (true) {
    auto at_once = std::min<std::uint64_t>(256_KiB, config_.bytes / files_max / 2);
    auto news = ring.after(written_, at_once);
    if (news.lines.empty())
      return done{};
    std::string text(std::exchange(torn_, false) ? 1 : 0, '\n');
    for (const auto& line : news.lines)
      text.append(*line).append("\n");
    if (size_ > 0 && size_ + text.size() > config_.bytes / files_max)
      if (auto rolled = roll(); !rolled)
        return end(rolled.error());
    if (auto written = files_->append(file(), as_byte_span(text)); !written)
      return end(written.error());
    size_ += text.size();
    written_ = news.last;
  }
}

result<std::vector<std::filesystem::path>> event_log_files(disk& files,
                                                           const std::filesystem::path& folder) {
  auto names = files.list(folder);
  if (!names)
    return names.error();
  std::vector<std::filesystem::path> out;
  for (const auto& name : *names)
    if (number_of(name))
      out.push_back(folder / name);
  return out;
}

} // namespace waggle
