#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/config/options.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/crypto/page_certificate.hpp"

namespace waggle {

namespace {

int run_id(const run_options& given) {
  auto options = given;
  std::error_code unknown;
  if (!options.swarm_key.empty() && !is_inline_key(options.swarm_key)
      && !std::filesystem::exists(options.swarm_key, unknown)) {
    if (auto made = save_swarm_key(make_swarm_key(), options.swarm_key); !made)
      return bad_usage("--swarm-key: " + made.error().detail);
    std::cerr << "made the swarm key " << options.swarm_key
              << ": give it to all peers of the run, and to nobody else\n";
  }
  if (auto key = load_key(options); !key)
    return bad_usage(key.error().detail);
  auto folder = options.given.contains("data-dir")
                  ? options.data_dir
                  : default_folder(options.data_dir, options.run(), 1);
  auto file = options.identity.value_or(folder / "identity.pem");
  auto key = identity::load_or_create(file);
  if (!key)
    return bad_usage(key.error().detail);
  std::cout << to_string((*key)->id()) << "\n";
  std::cerr << "from " << file.string() << "\n";
  auto page_file = folder / page_certificate_file;
  if (options.identity && !std::filesystem::exists(page_file, unknown))
    return exit_clean;
  auto pages = page_certificate::load_or_create(page_file);
  if (pages)
    std::cerr << "its pages over HTTPS: SHA-256 fingerprint " << (*pages)->fingerprint() << "\n";
  else
    std::cerr << "no certificate for its pages: " << pages.error().detail << "\n";
  return exit_clean;
}

} // namespace

command id_command() {
  return {.name = "id",
          .summary = "Shows this peer's id; makes its key if there is none.",
          .details =
            "The key stays in --data-dir (identity.pem, readable by its owner only). Without that "
            "option, it is that of the first peer of --run-id in this folder. Makes the file of "
            "--swarm-key, too, if there is none. The fingerprint (standard error) is that of "
            "pages.pem,\nwhich browsers show at https://HOST:PORT.\n",
          .run = run_id,
          .single_options = {"run-id", "swarm-key", "data-dir", "identity"},
          .makes_key = true};
}

} // namespace waggle
