/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli) as google_crc32c.extend computes it: the processor's instruction where there is one, else a
 * table of 256 words made on first use. Only for the compiled twins of our run loops.
 *
 * The instruction has its result after three cycles but may be begun in each: where there is enough, three stretches
 * are summed side by side. The sum of a stretch is then moved past those that follow it, which is a linear map of its
 * 32 bits and so four look-ups, a byte each.
 */
#ifndef MAGNETAR_CRC32C_H
#define MAGNETAR_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAGNETAR_CRC32C_LONG 2048
#define MAGNETAR_CRC32C_SHORT 256

static uint32_t magnetar_crc32c_table[256];
static uint32_t magnetar_crc32c_past_long[4][256];
static uint32_t magnetar_crc32c_past_short[4][256];
static int magnetar_crc32c_instruction = -1;

/* What becomes of each byte of a sum when this many bytes of zero follow. */
static void magnetar_crc32c_prepare_past(uint32_t past[4][256], size_t stretch) {
    for (int bit = 0; bit < 32; bit++) {
        uint32_t sum = (uint32_t)1 << bit;
        for (size_t i = 0; i < stretch; i++)
            sum = magnetar_crc32c_table[sum & 0xff] ^ (sum >> 8);
        past[bit / 8][1 << bit % 8] = sum;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 1; value < 256; value++)
            past[byte][value] = past[byte][value & (value - 1)] ^ past[byte][value & -value];
}

static void magnetar_crc32c_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t word = i;
        for (int bit = 0; bit < 8; bit++)
            word = (word >> 1) ^ (word & 1 ? 0x82f63b78u : 0);
        magnetar_crc32c_table[i] = word;
    }
    magnetar_crc32c_prepare_past(magnetar_crc32c_past_long, MAGNETAR_CRC32C_LONG);
    magnetar_crc32c_prepare_past(magnetar_crc32c_past_short, MAGNETAR_CRC32C_SHORT);
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    magnetar_crc32c_instruction = __builtin_cpu_supports("sse4.2") ? 1 : 0;
#else
    magnetar_crc32c_instruction = 0;
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
static uint32_t magnetar_crc32c_moved(uint32_t past[4][256], uint64_t sum) {
    return past[0][sum & 0xff] ^ past[1][sum >> 8 & 0xff] ^ past[2][sum >> 16 & 0xff] ^ past[3][sum >> 24 & 0xff];
}

__attribute__((target("sse4.2")))
static uint32_t magnetar_crc32c_of_three(
    uint32_t past[4][256], uint32_t crc, const uint8_t *data, size_t stretch
) {
    uint64_t words[3], first = crc, second = 0, third = 0;
    for (const uint8_t *end = data + stretch; data < end; data += 8) {
        memcpy(words, data, 8);
        memcpy(words + 1, data + stretch, 8);
        memcpy(words + 2, data + 2 * stretch, 8);
        first = __builtin_ia32_crc32di(first, words[0]);
        second = __builtin_ia32_crc32di(second, words[1]);
        third = __builtin_ia32_crc32di(third, words[2]);
    }
    second ^= magnetar_crc32c_moved(past, first);
    return (uint32_t)third ^ magnetar_crc32c_moved(past, second);
}

__attribute__((target("sse4.2")))
static uint32_t magnetar_crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t size) {
    uint64_t word, wide;
    for (; size >= 3 * MAGNETAR_CRC32C_LONG; data += 3 * MAGNETAR_CRC32C_LONG, size -= 3 * MAGNETAR_CRC32C_LONG)
        crc = magnetar_crc32c_of_three(magnetar_crc32c_past_long, crc, data, MAGNETAR_CRC32C_LONG);
    for (; size >= 3 * MAGNETAR_CRC32C_SHORT; data += 3 * MAGNETAR_CRC32C_SHORT, size -= 3 * MAGNETAR_CRC32C_SHORT)
        crc = magnetar_crc32c_of_three(magnetar_crc32c_past_short, crc, data, MAGNETAR_CRC32C_SHORT);
    wide = crc;
    while (size >= 8) {
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--)
        crc = __builtin_ia32_crc32qi(crc, *data++);
    return crc;
}
#endif

static uint32_t magnetar_crc32c(uint32_t crc, const char *bytes, size_t size) {
    const uint8_t *data = (const uint8_t *)bytes;
    crc = ~crc;
#if defined(__x86_64__) && defined(__GNUC__)
    if (magnetar_crc32c_instruction)
        return ~magnetar_crc32c_by_instruction(crc, data, size);
#endif
    while (size--)
        crc = magnetar_crc32c_table[(crc ^ *data++) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static inline void magnetar_put32(char *to, uint32_t number) {
    for (int i = 0; i < 4; i++)
        to[i] = (char)(number >> (24 - 8 * i));
}

static inline void magnetar_put64(char *to, uint64_t number) {
    for (int i = 0; i < 8; i++)
        to[i] = (char)(number >> (56 - 8 * i));
}

static inline uint32_t magnetar_get32(const char *from) {
    const uint8_t *data = (const uint8_t *)from;
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static inline uint64_t magnetar_get64(const char *from) {
    return (uint64_t)magnetar_get32(from) << 32 | magnetar_get32(from + 4);
}

/* A variable-length number; returns how many bytes it took. */
static inline int magnetar_put_varint(char *to, uint64_t number) {
    int size = 0;
    while (number >= 0x80) {
        to[size++] = (char)(number | 0x80);
        number >>= 7;
    }
    to[size++] = (char)number;
    return size;
}

#endif
