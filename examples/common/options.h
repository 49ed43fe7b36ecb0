/* What both trainers are told on the command line, and what they say to nonsense. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  long epochs;
  long batch; /* samples in a step, of all ranks together */
  long seed;
} options_t;

static void usage(FILE* to, const char* program, const char* more) {
  fprintf(to,
          "usage: %s [--epochs N] [--batch N] [--seed N]%s\n"
          "Trains a small network on made-up data: on this process alone, or on all ranks that a launcher started.\n"
          "  --epochs N   passes over the data (default 5)\n"
          "  --batch N    samples in a step, of all ranks together (default 64)\n"
          "  --seed N     other data and other initial weights (default 1)\n"
          "%s",
          program, more[0] == '\0' ? "" : " [...]", more);
}

/* text as a whole number between the two, or the end of this process. */
static long number(const char* option, const char* text, long least, long most) {
  char* end = NULL;
  long value = 0;
  errno = 0;
  if (text != NULL) value = strtol(text, &end, 10);
  if (text == NULL || end == text || *end != '\0' || errno != 0 || value < least || value > most) {
    fprintf(stderr, "%s must be a whole number from %ld to %ld, not '%s'\n", option, least, most, text == NULL ? "" : text);
    exit(2);
  }
  return value;
}

/* take: whether an option is one that this program alone has; more: its lines of usage. */
static options_t read_options(int argc, char** argv, int (*take)(const char* option, const char* value), const char* more) {
  options_t options = {5, 64, 1};
  int i;
  for (i = 1; i < argc; i += 2) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--help") == 0) {
      usage(stdout, argv[0], more);
      exit(0);
    } else if (strcmp(argv[i], "--epochs") == 0) {
      options.epochs = number(argv[i], value, 1, 1000000);
    } else if (strcmp(argv[i], "--batch") == 0) {
      options.batch = number(argv[i], value, 1, 1000000);
    } else if (strcmp(argv[i], "--seed") == 0) {
      options.seed = number(argv[i], value, 0, 1000000000);
    } else if (!take(argv[i], value)) {
      fprintf(stderr, "unknown option '%s'\n", argv[i]);
      usage(stderr, argv[0], more);
      exit(2);
    }
  }
  return options;
}

/* For a program that has no options of its own. */
static inline int take_none(const char* option, const char* value) {
  (void)option;
  (void)value;
  return 0;
}

/* What has to be equal on all ranks, in words. */
static void describe_options(const options_t* options, char* text, size_t size) {
  snprintf(text, size, "--epochs %ld --batch %ld --seed %ld", options->epochs, options->batch, options->seed);
}

#endif
