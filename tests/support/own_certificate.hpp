#pragma once

#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

namespace waggle::testing {

/// A key and a certificate for it, in PEM, as an operator may bring them. `kind`: a curve, bits of
/// RSA, or an algorithm.
inline std::string own_certificate(const std::string& kind, const EVP_MD* md = EVP_sha256()) {
  auto made = [&] {
    if (kind.starts_with("ED"))
      return EVP_PKEY_Q_keygen(nullptr, nullptr, kind.c_str());
    if (kind.find_first_not_of("0123456789") == std::string::npos) {
      std::shared_ptr<EVP_PKEY_CTX> rsa{EVP_PKEY_CTX_new_id(EVP_PKEY_RSA, nullptr),
                                        EVP_PKEY_CTX_free};
      EVP_PKEY* found = nullptr;
      EVP_PKEY_keygen_init(rsa.get());
      EVP_PKEY_CTX_set_rsa_keygen_bits(rsa.get(), std::stoi(kind));
      EVP_PKEY_CTX_set_rsa_keygen_primes(rsa.get(), std::stoi(kind) > 4096 ? 4 : 2); // quicker
      EVP_PKEY_generate(rsa.get(), &found);
      return found;
    }
    return EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", kind.c_str());
  };
  std::shared_ptr<EVP_PKEY> pair{made(), EVP_PKEY_free};
  std::shared_ptr<X509> certificate{X509_new(), X509_free};
  auto* c = certificate.get();
  X509_set_version(c, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(c), 1);
  X509_gmtime_adj(X509_getm_notBefore(c), 0);
  X509_gmtime_adj(X509_getm_notAfter(c), 3'600);
  auto* name = X509_NAME_new(); // signed by another
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("signer"), -1, -1, 0);
  X509_set_issuer_name(c, name);
  X509_NAME_free(name);
  X509_set_pubkey(c, pair.get());
  X509_sign(c, pair.get(), kind.starts_with("ED") ? nullptr : md);
  std::shared_ptr<BIO> bio{BIO_new(BIO_s_mem()), BIO_free};
  PEM_write_bio_PrivateKey(bio.get(), pair.get(), nullptr, nullptr, 0, nullptr, nullptr);
  PEM_write_bio_X509(bio.get(), c);
  char* data = nullptr;
  auto size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

} // namespace waggle::testing
