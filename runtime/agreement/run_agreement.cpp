#include "runtime/agreement/run_agreement.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "runtime/core/byte_io.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

using text_size = std::uint16_t;
constexpr std::size_t named_max = 2; // fields named in one sentence
constexpr std::size_t shown_bytes_max = 100;

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= run_agreement::name_bytes_max
         && std::ranges::all_of(text, [](unsigned char c) {
              return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-';
            });
}

/// True if the text can be printed in one line. Bytes above ASCII are allowed (UTF-8).
bool is_line(std::string_view text) {
  return text.size() <= run_agreement::text_bytes_max
         && std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::size_t bytes_of(const agreed_field& f) {
  return 3 * sizeof(text_size) + f.name.size() + f.value.size() + f.option.size();
}

constexpr std::string_view rounding_name = "rounding";
constexpr std::string_view before_hash = " ~";

/// Words and hash of a rounding_field; nothing: it is none.
std::optional<std::pair<std::string_view, std::string_view>> rounding_in(const agreed_field& f) {
  std::string_view value = f.value;
  auto at = value.rfind(before_hash);
  if (f.name != rounding_name || at == std::string_view::npos)
    return std::nullopt;
  return std::pair{value.substr(0, at), value.substr(at + before_hash.size())};
}

constexpr std::string_view before_fingerprints = " #";
constexpr std::size_t fingerprint_bytes = 4;
constexpr std::size_t fingerprints_max = 200; // 800 of text_bytes_max

/// The fingerprints of a value; empty: it has none.
std::string_view fingerprints_in(std::string_view value) {
  auto at = value.rfind(before_fingerprints);
  auto end = at == std::string_view::npos ? std::string_view{}
                                          : value.substr(at + before_fingerprints.size());
  bool hex = end.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return hex && end.size() % fingerprint_bytes == 0 ? end : std::string_view{};
}

std::string shown(const agreed_field* field, std::string_view where) {
  if (field == nullptr)
    return "not given " + std::string{where};
  auto value = field->value;
  if (auto rounding = rounding_in(*field))
    value = std::string{rounding->first};
  if (auto prints = fingerprints_in(value); !prints.empty())
    value.resize(value.size() - prints.size() - before_fingerprints.size());
  if (value.size() > shown_bytes_max)
    value.replace(shown_bytes_max, std::string::npos, "…");
  return value + " " + std::string{where};
}

/// The first tensor that differs, in words that this peer knows.
std::string first_difference(const agreed_field& ours, const agreed_field& theirs) {
  auto a = fingerprints_in(ours.value);
  auto b = fingerprints_in(theirs.value);
  std::size_t i = 0;
  while (i < ours.items.size()
         && a.substr(i * fingerprint_bytes, fingerprint_bytes)
              == b.substr(std::min(i * fingerprint_bytes, b.size()), fingerprint_bytes))
    ++i;
  auto summary = [](const std::string& value) {
    return value.substr(0, value.rfind(before_fingerprints));
  };
  return summary(ours.value) + " here and " + summary(theirs.value)
         + " there, of which the first that differs is "
         + (i < ours.items.size() ? "'" + ours.items[i] + "' here" : "behind all of those here");
}

bool differ(const agreed_field* a, const agreed_field* b) {
  if (a == nullptr || b == nullptr)
    return a != b && !rounding_in(a != nullptr ? *a : *b);
  auto ours = rounding_in(*a);
  auto theirs = rounding_in(*b);
  if (ours && theirs)
    return ours->first != theirs->first && ours->second != theirs->second;
  return a->value != b->value && !a->value.empty() && !b->value.empty();
}

} // namespace

agreed_field tensors_field(std::string name, std::string summary,
                           const std::vector<compared_tensor>& tensors) {
  agreed_field field{std::move(name), std::move(summary.append(before_fingerprints)), {}, {}};
  auto each = std::max<std::size_t>(1, (tensors.size() + fingerprints_max - 1) / fingerprints_max);
  for (std::size_t i = 0; i < tensors.size(); i += each) {
    sha256_stream all;
    std::string words;
    for (auto j = i; j < std::min(i + each, tensors.size()); ++j) {
      all.add(tensors[j].of.view());
      words += (j > i ? ", " : "") + tensors[j].words;
    }
    field.value += to_string(all.finish()).substr(0, fingerprint_bytes);
    field.items.push_back(std::move(words));
  }
  return field;
}

agreed_field rounding_field(std::string words, std::uint64_t hash) {
  words += before_hash;
  return {std::string{rounding_name}, words + std::to_string(hash), {}, {}};
}

status run_agreement::add(agreed_field field) {
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  if (!is_name(field.name))
    return bad("a field of the run's agreement has an invalid name");
  if (!is_line(field.value) || !is_line(field.option))
    return bad("--" + field.name + " is longer than " + std::to_string(text_bytes_max)
               + " bytes, or contains a control character: it cannot be sent to other peers");
  if (find(field.name) != nullptr)
    return bad("the run's agreement names " + field.name + " twice");
  if (fields_.size() == fields_max || bytes_ + bytes_of(field) > bytes_max)
    return bad("the options that must be equal on all peers are longer than "
               + std::to_string(bytes_max) + " bytes together: they cannot be sent to other peers");
  bytes_ += bytes_of(field);
  fields_.push_back(std::move(field));
  return done{};
}

const agreed_field* run_agreement::find(std::string_view name) const {
  auto found = std::ranges::find_if(fields_, [&](const agreed_field& f) { return f.name == name; });
  return found == fields_.end() ? nullptr : &*found;
}

digest run_agreement::hash() const {
  byte_writer out;
  for (const auto& f : fields_) {
    if (rounding_in(f))
      continue;
    out.put_text<text_size>(f.name).put_text<text_size>(f.value);
  }
  return sha256(out.text());
}

std::string run_agreement::encode() const {
  byte_writer out;
  out.put(static_cast<text_size>(fields_.size()));
  for (const auto& f : fields_)
    out.put_text<text_size>(f.name).put_text<text_size>(f.value).put_text<text_size>(f.option);
  return out.take();
}

result<run_agreement> run_agreement::decode(std::string_view bytes) {
  failure bad{ec::malformed, "these bytes are not a run agreement"};
  if (bytes.size() > bytes_max)
    return bad;
  byte_reader in{bytes};
  run_agreement out;
  for (auto left = in.get<text_size>(); left > 0; --left) {
    agreed_field field;
    for (auto* text : {&field.name, &field.value, &field.option})
      *text = in.get_text<text_size>();
    if (!in.ok() || !out.add(std::move(field)))
      return bad;
  }
  if (!in.ok() || in.left() > 0)
    return bad;
  return out;
}

std::optional<std::string> disagreement(const run_agreement& here, const run_agreement& there) {
  std::string sentence;
  std::size_t count = 0;
  auto compare = [&](const agreed_field* ours, const agreed_field* theirs) {
    if (!differ(ours, theirs) || ++count > named_max)
      return;
    sentence += (count > 1 ? ", " : "") + (ours != nullptr ? ours : theirs)->name + " is ";
    if (ours != nullptr && theirs != nullptr && !ours->items.empty()
        && !fingerprints_in(theirs->value).empty())
      sentence += first_difference(*ours, *theirs);
    else
      sentence += shown(ours, "here") + " and " + shown(theirs, "there");
  };
  for (const auto& ours : here.fields())
    compare(&ours, there.find(ours.name));
  for (const auto& theirs : there.fields())
    if (here.find(theirs.name) == nullptr)
      compare(nullptr, &theirs);
  if (count == 0)
    return std::nullopt;
  if (count > named_max)
    sentence += ", and " + std::to_string(count - named_max) + " more";
  return sentence + "; start it with the run's options";
}

} // namespace waggle
