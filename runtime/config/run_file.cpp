// The only file that includes toml11: it takes ten seconds to compile.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include <boost/nowide/utf/utf.hpp>
#include <toml.hpp>

#include "runtime/config/options.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

std::string text_of(const toml::value& value) {
  if (value.is_string())
    return value.as_string().str;
  if (value.is_array()) {
    std::string joined;
    for (const auto& item : value.as_array())
      joined += (joined.empty() ? "" : ",") + text_of(item);
    return joined;
  }
  std::ostringstream out;
  out << value;
  return out.str();
}

/// The message of toml11, without its drawing of the position.
std::string first_line(std::string what) {
  what = what.substr(0, what.find('\n'));
  constexpr std::string_view mark = "[error] ";
  return what.starts_with(mark) ? what.substr(mark.size()) : what;
}

/// The line of the first byte that is not UTF-8; 0: there is none. toml11 reads beyond a string
/// that has one.
std::ptrdiff_t line_of_foreign_byte(const std::string& text) {
  namespace utf = boost::nowide::utf;
  for (auto at = text.begin(); at != text.end();) {
    auto begin = at;
    if (!utf::is_valid_codepoint(utf::utf_traits<char>::decode(at, text.end())))
      return 1 + std::count(text.begin(), begin, '\n');
  }
  return 0;
}

status collect(const std::string& file, const toml::table& table, settings& found) {
  std::vector<std::string> names;
  for (const auto& spec : option_table())
    names.push_back(spec.name);
  for (const auto& [key, value] : table) {
    if (value.is_table()) {
      WAGGLE_TRY(inner, collect(file, value.as_table(), found));
      continue;
    }
    auto name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    auto where = file + ":" + std::to_string(value.location().line());
    if (find_option(name) == nullptr)
      return failure{ec::bad_config, where + ": there is no option '" + key + "'; the nearest is '"
                                       + nearest(name, names) + "'"};
    if (auto [first, fresh] = found.try_emplace(name, setting{text_of(value), where}); !fresh)
      return failure{ec::bad_config, where + ": '" + key
                                       + "' is set a second time; the other is at "
                                       + first->second.source};
  }
  return done{};
}

} // namespace

result<settings> from_file(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  if (!in)
    return failure{ec::bad_config, "cannot read the run file " + file.string()
                                     + ": it does not exist, or this user may not read it"};
  if (std::error_code ignored; std::filesystem::is_directory(file, ignored))
    return failure{ec::bad_config, "the run file " + file.string() + " is a folder"};
  constexpr std::uintmax_t bytes_max = 1'048'576;
  std::error_code unknown;
  if (auto size = std::filesystem::file_size(file, unknown); !unknown && size > bytes_max)
    return failure{ec::bad_config, "the run file " + file.string() + " has " + std::to_string(size)
                                     + " bytes, more than any set of options: is it another file?"};
  std::string text{std::istreambuf_iterator<char>{in}, {}};
  if (auto line = line_of_foreign_byte(text); line > 0)
    return failure{ec::bad_config, file.string() + ":" + std::to_string(line)
                                     + ": this is not UTF-8, as run files are: save it as UTF-8"};
  settings found;
  try {
    std::istringstream valid{std::move(text)};
    auto parsed = toml::parse(valid, file.string());
    WAGGLE_TRY(taken, collect(file.string(), parsed.as_table(), found));
  } catch (const toml::exception& e) {
    return failure{ec::bad_config, file.string() + ":" + std::to_string(e.location().line())
                                     + ": this is not TOML: " + first_line(e.what())};
  } catch (const std::exception& e) {
    return failure{ec::bad_config, file.string() + " is not TOML: " + first_line(e.what())};
  }
  return found;
}

} // namespace waggle
