#include "runtime/codec/codec_choice.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/core/bytes.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

using by = codec_choice::by;

constexpr std::string_view role_names[]{"unspecified", "activation", "parameter",
                                        "gradient",    "optimizer",  "buffer",
                                        "metric",      "wish",       "counter"};
/// Those that may be named, in the order of the text form.
const std::vector<std::string>& named_roles() {
  static const std::vector<std::string> all{"activation", "parameter", "gradient",
                                            "optimizer",  "buffer",    "default"};
  return all;
}

constexpr struct {
  std::string_view name;
  by criterion;
} criteria[]{{"size", by::size}, {"role", by::role}, {"list", by::index}, {"map", by::key}};

bool has_names(by criterion) {
  return criterion == by::role || criterion == by::key;
}

// A run file is written by people: deeper nesting is a mistake.
constexpr int depth_max = 8;

failure wrong(std::string why) {
  return {ec::bad_config, std::move(why)};
}

// -- names in the text form -----------------------------------------------------------------------

constexpr std::string_view special = ",=()%";

/// Escapes bytes with a meaning in the text form, and non-printable ones, as %2C.
std::string escape(std::string_view name) {
  std::string out;
  for (char c : name) {
    bool plain = c > ' ' && c != 0x7f && special.find(c) == std::string_view::npos;
    out += plain ? std::string(1, c) : "%" + to_hex(as_byte_span({&c, 1}));
  }
  return out;
}

result<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    auto byte = from_hex(text.substr(i + 1, 2));
    if (!byte || byte->size() != 1)
      return wrong("after % in '" + std::string{text} + "' two hexadecimal digits are needed");
    out += *byte;
    i += 2;
  }
  return out;
}

// -- parsing --------------------------------------------------------------------------------------

/// Splits at the commas outside parentheses. Fails for parentheses that do not match.
result<std::vector<std::string_view>> items_of(std::string_view text) {
  std::vector<std::string_view> items;
  int open = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(')
      ++open;
    if (text[i] == ')' && --open < 0)
      break;
    if (text[i] == ',' && open == 0) {
      items.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (open != 0)
    return wrong("the parentheses of '" + std::string{text} + "' do not match");
  items.push_back(text.substr(begin));
  return items;
}

result<codec_choice> parse(std::string_view text, int depth);

/// An item: a codec, or a choice in parentheses.
result<codec_choice> parse_item(std::string_view item, int depth) {
  if (item.starts_with('(') && item.ends_with(')'))
    return parse(item.substr(1, item.size() - 2), depth + 1);
  WAGGLE_TRY(codec, parse_codec(item));
  return codec_choice{*codec};
}

result<std::uint64_t> parse_threshold(std::string_view text) {
  std::uint64_t threshold = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threshold);
  if (error != std::errc{} || end != text.data() + text.size())
    return wrong("'" + std::string{text} + "' is not a number of values");
  return threshold;
}

/// NAME=CHOICE, or CHOICE.
result<codec_choice::item> parse_entry(by criterion, std::string_view text, int depth) {
  std::string name;
  if (has_names(criterion)) {
    auto equals = text.find('=');
    if (equals == std::string_view::npos)
      return wrong("'" + std::string{text} + "' is not " + (criterion == by::role ? "ROLE" : "NAME")
                   + "=CODEC");
    WAGGLE_TRY(read, unescape(text.substr(0, equals)));
    name = *read;
    text.remove_prefix(equals + 1);
  }
  WAGGLE_TRY(choice, parse_item(text, depth));
  return codec_choice::item{std::move(name), std::move(*choice)};
}

std::size_t rank_of(const codec_choice::item& item) {
  return static_cast<std::size_t>(std::ranges::find(named_roles(), item.name)
                                  - named_roles().begin());
}

/// All choices by role have a default.
status complete_roles(std::vector<codec_choice::item>& items) {
  for (const auto& item : items)
    if (rank_of(item) == named_roles().size())
      return wrong("'" + item.name + "' is not a role; there are: " + joined(named_roles(), ", "));
  if (std::ranges::find(items, named_roles().back(), &codec_choice::item::name) == items.end())
    items.push_back({named_roles().back(), {}});
  std::ranges::sort(items, {}, rank_of);
  return done{};
}

result<codec_choice> parse(std::string_view text, int depth) {
  if (depth > depth_max)
    return wrong("more than " + std::to_string(depth_max) + " choices within each other");
  auto colon = text.find(':');
  auto kind = text.substr(0, colon);
  // A colon after an opening parenthesis or an equals sign belongs to a key.
  if (colon == std::string_view::npos || kind.find_first_of("(=,") != std::string_view::npos) {
    auto one = parse_item(text, depth);
    if (one || text.find_first_of(",=") == std::string_view::npos)
      return one;
    return wrong("'" + std::string{text}
                 + "' does not name a criterion; use size:, role:, list: or "
                   "map:");
  }
  WAGGLE_TRY(items, items_of(text.substr(colon + 1)));
  const auto* form = std::ranges::find_if(criteria, [&](const auto& c) { return c.name == kind; });
  if (form == std::end(criteria))
    return wrong(
      "'" + std::string{kind}
      + ":' is not a kind of choice; there are: CODEC, size:THRESHOLD,LESS,GREATER_OR_EQUAL, "
        "role:ROLE=CODEC,…, list:CODEC,…, map:NAME=CODEC,…, where CODEC is one of "
      + codec_names() + ", or again a choice in parentheses");
  codec_choice out;
  out.criterion = form->criterion;
  if (out.criterion == by::size) {
    if (items->size() != 3)
      return wrong("a choice by size is size:THRESHOLD,LESS,GREATER_OR_EQUAL, for example "
                   "size:65536,float16,blockwise8");
    WAGGLE_TRY(threshold, parse_threshold(items->front()));
    out.threshold = *threshold;
    items->erase(items->begin());
  }
  for (auto item : *items) {
    WAGGLE_TRY(entry, parse_entry(out.criterion, item, depth));
    auto same = std::ranges::find(out.items, entry->name, &codec_choice::item::name);
    if (has_names(out.criterion) && same != out.items.end())
      return wrong("'" + entry->name + "' is listed twice");
    out.items.push_back(std::move(*entry));
  }
  if (out.criterion == by::key)
    std::ranges::sort(out.items, {}, &codec_choice::item::name);
  if (out.criterion == by::role)
    if (auto complete = complete_roles(out.items); !complete)
      return complete.error();
  return out;
}

} // namespace

std::string_view to_string(tensor_role role) {
  return role_names[static_cast<std::size_t>(role)];
}

result<codec_id> codec_choice::choose(const tensor_info& tensor, std::size_t index) const {
  if (tensor.role == tensor_role::metric)
    return codec_id::none;
  if (tensor.role == tensor_role::wish)
    return codec_id::median64;
  if (tensor.role == tensor_role::counter)
    return codec_id::largest64;
  // A rounded variance may be negative, and buffers are short.
  if (tensor.role == tensor_role::buffer && !names(tensor))
    return codec_id::none;
  return pick(tensor, index);
}

/// Whether this choice is explicit about the tensor, or about all tensors of its role.
bool codec_choice::names(const tensor_info& tensor) const {
  if (criterion == by::size)
    return items[tensor.elements < threshold ? 0 : 1].choice.names(tensor);
  if (criterion == by::role)
    return std::ranges::find(items, to_string(tensor.role), &item::name) != items.end();
  return criterion != by::nothing;
}

result<codec_id> codec_choice::pick(const tensor_info& tensor, std::size_t index) const {
  switch (criterion) {
    case by::nothing:
      return codec;
    case by::size:
      return items[tensor.elements < threshold ? 0 : 1].choice.pick(tensor, index);
    case by::role: {
      auto at = std::find_if(items.begin(), items.end() - 1,
                             [&](const item& each) { return each.name == to_string(tensor.role); });
      return at->choice.pick(tensor, index);
    }
    case by::index:
      if (index >= items.size())
        return wrong("tensor " + std::to_string(index) + " ('" + tensor.key
                     + "') has no codec: the list ends after " + std::to_string(items.size()));
      return items[index].choice.pick(tensor, index);
    case by::key: {
      auto at = std::ranges::lower_bound(items, tensor.key, {}, &item::name);
      if (at == items.end() || at->name != tensor.key)
        return wrong("tensor '" + tensor.key + "' has no codec: the map does not name it");
      return at->choice.pick(tensor, index);
    }
  }
  return wrong("a choice by an unknown criterion");
}

bool uses(const codec_choice& choice, bool (*property)(codec_id)) {
  return choice.criterion == by::nothing
           ? property(choice.codec)
           : std::ranges::any_of(choice.items, [&](const codec_choice::item& each) {
               return uses(each.choice, property);
             });
}

std::string to_string(const codec_choice& choice) {
  if (choice.criterion == by::nothing)
    return std::string{to_string(choice.codec)};
  std::string out;
  for (const auto& form : criteria)
    if (form.criterion == choice.criterion)
      out = std::string{form.name} + ":";
  if (choice.criterion == by::size)
    out += std::to_string(choice.threshold) + ",";
  for (const auto& item : choice.items) {
    auto text = to_string(item.choice);
    out += &item == &choice.items.front() ? "" : ",";
    out += has_names(choice.criterion) ? escape(item.name) + "=" : "";
    out += item.choice.criterion == by::nothing ? text : "(" + text + ")";
  }
  return out;
}

result<codec_choice> parse_codec_choice(std::string_view text) {
  return parse(text, 0);
}

result<codec_plan> plan_codecs(const codec_choice& choice, std::span<const tensor_info> tensors) {
  codec_plan plan;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    WAGGLE_TRY(codec, choice.choose(tensors[i], i));
    if (tensors[i].elements == 0)
      continue;
    // An aggregator that measures distances treats each run by itself, and parameters, gradients,
    // buffers and metrics have different magnitudes.
    auto differ = [&](tensor_role role) {
      return i > 0 && (tensors[i].role == role) != (tensors[i - 1].role == role);
    };
    bool apart =
      differ(tensor_role::buffer) || differ(tensor_role::metric) || differ(tensor_role::gradient);
    // A run of numbers is one part.
    bool fits = result_of(*codec) == codec_result::aggregate || plan.empty()
                || plan.back().elements + tensors[i].elements <= whole_run_max;
    if (!plan.empty() && plan.back().codec == *codec && !apart && fits)
      plan.back().elements += tensors[i].elements;
    else
      plan.push_back({tensors[i].elements, *codec});
  }
  if (plan.size() > codec_runs_max)
    return wrong("the codec changes " + std::to_string(plan.size() - 1)
                 + " times along the vector; at most " + std::to_string(codec_runs_max)
                 + " stretches are possible: choose by fewer criteria");
  return plan;
}

} // namespace waggle
