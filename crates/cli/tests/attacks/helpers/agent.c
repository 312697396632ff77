/* An agent library of a JVM, which adds the user that has loaded it to the file PROOF. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void load(void)
{
    FILE *proof = fopen(PROOF, "a");
    if (!proof) return;
    fprintf(proof, "loaded by uid %d\n", geteuid());
    fclose(proof);
}

int Agent_OnLoad(void *jvm, char *options, void *reserved) { return 0; }
