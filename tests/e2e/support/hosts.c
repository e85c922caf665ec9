/*
 * Preloaded into a Weir, it looks up names that end with `.test` only in the file $WEIR_TEST_HOSTS, whose lines are an
 * address and a name. Each lookup reads the file, and threads share nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    lookup *of_system = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    size_t length = node ? strlen(node) : 0;
    if (length < 5 || strcmp(node + length - 5, ".test") != 0) {
        return of_system(node, service, hints, found);
    }
    char address[64], name[256];
    int result = EAI_NONAME;
    const char *path = getenv("WEIR_TEST_HOSTS");
    FILE *hosts = path ? fopen(path, "r") : NULL;
    while (hosts && result == EAI_NONAME && fscanf(hosts, "%63s %255s", address, name) == 2) {
        if (strcmp(name, node) == 0) {
            result = of_system(address, service, hints, found);
        }
    }
    if (hosts) {
        fclose(hosts);
    }
    return result;
}
