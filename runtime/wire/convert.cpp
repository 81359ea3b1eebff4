#include "runtime/wire/convert.hpp"

#include <map>

#include <google/protobuf/io/coded_stream.h>

#include "runtime/wire/message_fields.hpp"
#include "waggle_wire.pb.h"

namespace waggle::wire {

namespace {

using proto::Header;
using about_link = std::variant<refusal, cancel, ping, pong>;

/// "dht_ping" for dht_ping: also the name of its field in Header.
template <class T>
constexpr std::string_view name_of() {
  constexpr std::string_view before = "T = waggle::wire::";
  std::string_view name = __PRETTY_FUNCTION__; // … [with T = waggle::wire::dht_ping; …]
  name.remove_prefix(name.find(before) + before.size());
  return name.substr(0, name.find_first_of(";]"));
}
static_assert(name_of<dht_ping>() == "dht_ping");

template <class T>
const FieldDescriptor* content() {
  static const auto* const field = Header::descriptor()->FindFieldByName(std::string{name_of<T>()});
  return field;
}

template <class T>
void write_content(const T& what, Header& header) {
  write(what, *header.GetReflection()->MutableMessage(&header, content<T>()));
}

template <class T>
result<message> read_content(const Header& header) {
  T out;
  reader from{header.GetReflection()->GetMessage(header, content<T>())};
  fields(of<T>{}, from, out);
  if (from.why() != ec::none)
    return failure{from.why(), std::string{name_of<T>()} + ": " + from.where()};
  if constexpr (requires { out.id = header.call(); })
    out.id = header.call();
  if constexpr (std::is_constructible_v<request, T>)
    return message{call{header.call(), header.deadline_ms(), std::move(out)}};
  else if constexpr (std::is_constructible_v<response, T>)
    return message{answer{header.call(), std::move(out)}};
  else if constexpr (std::is_constructible_v<event, T>)
    return message{event{std::move(out)}};
  else
    return message{std::move(out)};
}

using content_readers = std::map<int, result<message> (*)(const Header&)>; // by field number

template <class... Ts>
void add_readers(std::type_identity<std::variant<Ts...>>, content_readers& to) {
  (to.emplace(content<Ts>()->number(), read_content<Ts>), ...);
}

const content_readers& readers() {
  static const auto all = [] {
    content_readers to;
    add_readers(std::type_identity<request>{}, to);
    add_readers(std::type_identity<response>{}, to);
    add_readers(std::type_identity<event>{}, to);
    add_readers(std::type_identity<about_link>{}, to);
    return to;
  }();
  return all;
}

bool has_body(const message& what) {
  if (const auto* e = std::get_if<event>(&what)) {
    const auto* pledge = std::get_if<round_pledge>(e);
    return std::holds_alternative<part>(*e) || (pledge != nullptr && pledge->contributes);
  }
  if (const auto* a = std::get_if<answer>(&what))
    return std::holds_alternative<state_chunk>(a->what);
  return false;
}

} // namespace

std::string encode(const message& what) {
  Header header;
  auto put = [&](const auto& content) { write_content(content, header); };
  std::visit(
    [&]<class T>(const T& x) {
      if constexpr (requires { x.id; })
        header.set_call(x.id);
      if constexpr (requires { x.deadline_ms; })
        header.set_deadline_ms(x.deadline_ms);
      if constexpr (requires { x.what; })
        std::visit(put, x.what);
      else if constexpr (std::is_same_v<T, event>)
        std::visit(put, x);
      else
        put(x);
    },
    what);
  return header.SerializeAsString();
}

result<message> decode(std::string_view header, std::size_t body_bytes) {
  if (header.size() > header_bytes_max || body_bytes > body_bytes_max)
    return failure{ec::oversize, "frame"};
  google::protobuf::io::CodedInputStream in{reinterpret_cast<const std::uint8_t*>(header.data()),
                                            static_cast<int>(header.size())};
  in.SetRecursionLimit(8);
  Header parsed;
  if (!parsed.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage())
    return failure{ec::malformed, "a header that does not parse"};
  auto read = readers().find(parsed.content_case());
  if (read == readers().end())
    return failure{ec::protocol_violation, "a message of a kind that this version does not know"};
  auto out = read->second(parsed);
  if (out.ok() && has_body(*out) != (body_bytes > 0))
    return failure{ec::protocol_violation,
                   body_bytes > 0 ? "a message of this kind has no body" : "the body is missing"};
  return out;
}

} // namespace waggle::wire
