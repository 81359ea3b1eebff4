#include "runtime/training/model_table.hpp"

#include "runtime/core/named.hpp"

namespace waggle {

namespace {

constexpr model_row table[] = {
  {"char-gpt", false,
   [](const model_shape& shape) -> status {
     if (shape.width % shape.heads != 0)
       return failure{ec::bad_config, "--heads " + std::to_string(shape.heads)
                                        + " must divide --width " + std::to_string(shape.width)};
     return done{};
   },
   [](const model_shape& shape) { return "heads=" + std::to_string(shape.heads); }},
  {"mlp", false, [](const model_shape&) -> status { return done{}; },
   [](const model_shape&) { return std::string{}; }},
  {"cnn", true,
   [](const model_shape& shape) -> status {
     if (shape.layers > 6 || shape.width < 4)
       return failure{ec::bad_config, "--model cnn has at most 6 --layers, because each halves the "
                                      "image, and a --width of at least 4"};
     return done{};
   },
   [](const model_shape&) { return std::string{}; }},
};

} // namespace

std::span<const model_row> model_table() {
  return table;
}

const model_row* find_model(std::string_view name) {
  return find_named(model_table(), name);
}

} // namespace waggle
